// SPDX-License-Identifier: Apache-2.0
#include "remat/report/details_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "remat/core/moves.h"
#include "remat/report/numbers.h"

namespace remat {
namespace {


// By step, the number of runs and recomputes before it.
std::vector<int64_t> runs_before(const Schedule& schedule) {
  std::vector<int64_t> runs;
  int64_t count = 0;
  for (const ScheduleStep& step : schedule.steps) {
    runs.push_back(count);
    count += step.kind == StepKind::free ? 0 : 1;
  }
  return runs;
}

// The instances that end with or right after each run: freed, or with another in their place.
std::vector<std::vector<InstanceId>> ended_by_run(const Graph& graph, const Schedule& schedule) {
  std::vector<std::vector<InstanceId>> ended;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind == StepKind::free) {
      if (!ended.empty()) ended.back().push_back(step.instance);
      continue;
    }
    ended.emplace_back();
    for (const InstanceId made : schedule.creates(graph, step)) {
      const InstanceId replaced = schedule.instances[index(made)].in_place_of;
      if (replaced != kNoInstance) ended.back().push_back(replaced);
    }
  }
  return ended;
}

// By run, the ops of which it leaves nothing resident. What an op in place leaves is the instance that it
// changed; what is unpacked or brought back is the maker's again. The end of a packed or offloaded form is one of
// the maker's, too.
nlohmann::json emptied_json(const Graph& graph, const Schedule& schedule) {
  const std::vector<std::vector<InstanceId>> ended = ended_by_run(graph, schedule);
  std::vector<std::vector<OpId>> makers(schedule.instances.size());  // by instance
  std::vector<int64_t> resident(graph.ops.size(), 0);                // instances that the op made
  const auto is_form = [&](InstanceId id) { return graph.is_form(schedule.instances[index(id)].storage); };
  nlohmann::json emptied = nlohmann::json::array();
  size_t run = 0;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind == StepKind::free) continue;
    const OpId behind = op_behind(graph, step.op);
    const auto made = graph.op(step.op).creates.empty() ? schedule.updates(graph, step)
                                                        : schedule.creates(graph, step);
    for (const InstanceId id : made) {
      if (index(id) < graph.external_count) continue;
      makers[index(id)].push_back(behind);
      if (!is_form(id)) ++resident[index(behind)];
    }
    nlohmann::json now_empty = nlohmann::json::array();
    if (resident[index(behind)] == 0) now_empty.push_back(index(behind));
    for (const InstanceId id : ended[run]) {
      for (const OpId maker : makers[index(id)]) {
        if (!is_form(id)) --resident[index(maker)];
        if (resident[index(maker)] == 0) now_empty.push_back(index(maker));
      }
    }
    emptied.push_back(std::move(now_empty));
    ++run;
  }
  return emptied;
}

// A table of blocks, column by column.
class Blocks {
 public:
  // `role` is a place in the list of roles.
  // What is on a channel has no bytes here.
  void add(int64_t offset, int64_t bytes, int64_t from, int64_t to, size_t role, OpId op) {
    if (bytes == 0 || offset == kNoAddress) return;
    offset_.push_back(offset);
    bytes_.push_back(bytes);
    from_.push_back(from);
    to_.push_back(to);
    role_.push_back(role);
    op_.push_back(index(op));
  }
  nlohmann::json json() && {
    return {{"offset", std::move(offset_)}, {"bytes", std::move(bytes_)}, {"from", std::move(from_)},
            {"to", std::move(to_)},         {"role", std::move(role_)},   {"op", std::move(op_)}};
  }

 private:
  nlohmann::json offset_ = nlohmann::json::array(), bytes_ = nlohmann::json::array(), from_ = nlohmann::json::array(), to_ = nlohmann::json::array(),
       role_ = nlohmann::json::array(), op_ = nlohmann::json::array();
};

}  // namespace

nlohmann::json ops_json(const Graph& graph) {
  nlohmann::json names = nlohmann::json::array(), kinds = nlohmann::json::array(), layers = nlohmann::json::array(), phases = nlohmann::json::array(),
       times = nlohmann::json::array();
  for (const Op& op : graph.ops) {
    names.push_back(op.name);
    kinds.push_back(op.kind);
    layers.push_back(layer_of(op.scope, 0));
    phases.push_back(name(op.phase));
    times.push_back(op.time_ns);
  }
  return {{"name", std::move(names)},
          {"kind", std::move(kinds)},
          {"layer", std::move(layers)},
          {"phase", std::move(phases)},
          {"time_ns", std::move(times)}};
}

nlohmann::json moments_json(const std::vector<Moment>& moments) {
  nlohmann::json bytes = nlohmann::json::array();
  for (const Moment& moment : moments) bytes.push_back(moment.bytes);
  nlohmann::json by_role = nlohmann::json::object();
  const auto add = [&](std::string_view role, auto&& of) {
    const int64_t first = moments.empty() ? 0 : of(moments.front());
    if (std::ranges::all_of(moments, [&](const Moment& moment) { return of(moment) == first; })) {
      if (first != 0) by_role[std::string(role)] = first;
      return;
    }
    nlohmann::json column = nlohmann::json::array();
    for (const Moment& moment : moments) column.push_back(of(moment));
    by_role[std::string(role)] = std::move(column);
  };
  for (size_t role = 0; role < kRoleCount; ++role) {
    add(name(static_cast<Role>(role)), [&](const Moment& moment) { return moment.by_role[role]; });
  }
  add("workspace", [](const Moment& moment) { return moment.workspace_bytes; });
  return {{"bytes", std::move(bytes)}, {"by_role", std::move(by_role)}};
}

nlohmann::json schedule_json(const Graph& graph, const Schedule& schedule, const ScheduleDetails& details) {
  const Simulation simulation = simulate(graph, schedule);
  std::vector<Moment> moments;
  nlohmann::json ops = nlohmann::json::array(), starts = nlohmann::json::array(), moves = nlohmann::json::array();
  int64_t peak_run = 0;
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind == StepKind::free) continue;
    if (s == simulation.peak_step) peak_run = static_cast<int64_t>(moments.size());
    moments.push_back(simulation.timeline[s]);
    const StepKind kind = schedule.steps[s].kind;
    if (kind != StepKind::run && kind != StepKind::recompute) moves.push_back({ops.size(), name(kind)});
    ops.push_back(index(op_behind(graph, schedule.steps[s].op)));
    starts.push_back(simulation.timeline[s].begin_ns);
  }
  nlohmann::json json = moments_json(moments);
  if (!details.by_role) json.erase("by_role");
  json.update({{"peak_bytes", simulation.peak_bytes},
               {"peak_run", peak_run},
               {"time_ns", simulation.time_ns},
               {"op", std::move(ops)},
               {"emptied", emptied_json(graph, schedule)}});
  if (!moves.empty()) {  // else a run begins where the one before ends
    json["moves"] = std::move(moves);
    json["start_ns"] = std::move(starts);
  }
  if (!details.measured_bytes.empty()) {
    json["measured_bytes"] = std::vector(details.measured_bytes.begin(), details.measured_bytes.end());
  }
  return json;
}

nlohmann::json arena_json(const Graph& graph, const Schedule& schedule, const Placement& placement) {
  const std::vector<int64_t> runs = runs_before(schedule);
  const int64_t last_run = static_cast<int64_t>(std::ranges::count_if(
      schedule.steps, [](const ScheduleStep& step) { return step.kind != StepKind::free; })) - 1;
  std::vector<int64_t> from(schedule.instances.size(), 0), to(schedule.instances.size(), last_run);
  Blocks blocks;
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const ScheduleStep& step = schedule.steps[s];
    if (step.kind == StepKind::free) {
      to[index(step.instance)] = runs[s] - 1;
      continue;
    }
    for (const InstanceId made : schedule.creates(graph, step)) {
      from[index(made)] = runs[s];
      const InstanceId replaced = schedule.instances[index(made)].in_place_of;
      if (replaced != kNoInstance) to[index(replaced)] = runs[s] - 1;
    }
    blocks.add(placement.workspace_offset[s], graph.op(step.op).workspace_bytes, runs[s], runs[s],
               kRoleCount, op_behind(graph, step.op));
  }
  for (size_t i = graph.external_count; i < schedule.instances.size(); ++i) {
    const Storage& storage = graph.storage(schedule.instances[i].storage);
    blocks.add(placement.instance_offset[i], storage.bytes, from[i], to[i],
               static_cast<size_t>(storage.role), op_behind(graph, *storage.creator));
  }
  nlohmann::json json = std::move(blocks).json();
  nlohmann::json roles = nlohmann::json::array();
  for (size_t role = 0; role < kRoleCount; ++role) roles.push_back(name(static_cast<Role>(role)));
  roles.push_back("workspace");
  json.update({{"arena_bytes", placement.arena_bytes},
               {"max_live_bytes", placement.max_live_bytes},
               {"roles", std::move(roles)}});
  return json;
}

}  // namespace remat
