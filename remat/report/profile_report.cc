// SPDX-License-Identifier: Apache-2.0
#include "remat/report/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/units.h"
#include "remat/report/bar_chart.h"
#include "remat/report/details_json.h"
#include "remat/report/numbers.h"
#include "remat/report/table.h"

namespace remat {
namespace {

constexpr std::string_view kBeforeTheStep = "before the step";
constexpr std::string_view kWorkspace = "workspace";

class Rows {
 public:
  ProfileRow& operator[](std::string_view name) {
    const auto [at, added] = index_.try_emplace(std::string(name), rows_.size());
    if (added) rows_.push_back({.name = std::string(name)});
    return rows_[at->second];
  }
  void add_time(std::string_view name, const Op& op) {
    ProfileRow& row = (*this)[name];
    (op.phase == Phase::forward    ? row.forward_ns
     : op.phase == Phase::backward ? row.backward_ns
                                   : row.optimizer_ns) += op.time_ns;
    ++row.ops;
  }
  std::vector<ProfileRow> in_order() && { return std::move(rows_); }
  template <typename Key>
  std::vector<ProfileRow> largest_first(Key key) && {
    std::ranges::stable_sort(rows_, std::greater<>(), key);
    return std::move(rows_);
  }

 private:
  std::vector<ProfileRow> rows_;
  std::map<std::string, size_t, std::less<>> index_;
};

// The storages that are resident while `peak_step` runs, in a schedule without recomputes and reuse.
std::vector<StorageId> resident_at(const Graph& graph, const Schedule& schedule, size_t peak_step) {
  std::vector<bool> resident(graph.storages.size(), false);
  std::fill_n(resident.begin(), graph.external_count, true);
  for (size_t s = 0; s < schedule.steps.size() && s <= peak_step; ++s) {
    const ScheduleStep& step = schedule.steps[s];
    if (step.kind == StepKind::free) {
      resident[index(schedule.instances[index(step.instance)].storage)] = false;
      continue;
    }
    for (const StorageId made : graph.op(step.op).creates) resident[index(made)] = true;
  }
  std::vector<StorageId> storages;
  for (size_t i = 0; i < resident.size(); ++i) {
    if (resident[i]) storages.push_back(static_cast<StorageId>(i));
  }
  return storages;
}

// By storage, the first op that makes, reads or changes it.
std::vector<const Op*> first_users(const Graph& graph) {
  std::vector<const Op*> users(graph.storages.size(), nullptr);
  const auto uses = [&](StorageId storage, const Op& op) {
    if (users[index(storage)] == nullptr) users[index(storage)] = &op;
  };
  for (const Op& op : graph.ops) {
    for (const Value& value : op.reads) uses(value.storage, op);
    for (const Value& value : op.updates) uses(value.storage, op);
    for (const Value& value : op.effects) uses(value.storage, op);
    for (const StorageId made : op.creates) uses(made, op);
  }
  return users;
}

void add_table(std::string& out, const char* what, const std::vector<ProfileRow>& rows,
               const ProfileReport& report, size_t limit) {
  const bool updates =
      std::ranges::any_of(rows, [](const ProfileRow& row) { return row.optimizer_ns > 0; });
  std::vector<std::string> header = {what, "at the peak", "share", "forward", "backward"};
  if (updates) header.emplace_back("update");
  header.insert(header.end(), {"share", "ops"});
  Table table(header);
  const auto time_cell = [](int64_t ns) { return ns > 0 ? format_ns(ns) : ""; };
  const auto add = [&](const ProfileRow& row) {
    const bool timed = row.ops > 0;
    std::vector<std::string> cells = {
        row.name, row.bytes > 0 ? format_bytes(row.bytes) : "",
        row.bytes > 0 ? share(row.bytes, report.keep_all_peak_bytes) : "",
        time_cell(row.forward_ns), time_cell(row.backward_ns)};
    if (updates) cells.push_back(time_cell(row.optimizer_ns));
    cells.push_back(timed ? share(row.time_ns(), report.op_time_ns) : "");
    cells.push_back(timed ? std::to_string(row.ops) : "");
    table.add_row(cells);
  };
  const size_t shown = rows.size() > limit + 1 ? limit : rows.size();
  for (size_t i = 0; i < shown; ++i) add(rows[i]);
  if (shown < rows.size()) {
    ProfileRow rest{.name = fmt::format("({} more)", rows.size() - shown)};
    for (size_t i = shown; i < rows.size(); ++i) {
      rest.bytes += rows[i].bytes;
      rest.forward_ns += rows[i].forward_ns;
      rest.backward_ns += rows[i].backward_ns;
      rest.optimizer_ns += rows[i].optimizer_ns;
      rest.ops += rows[i].ops;
    }
    add(rest);
  }
  out += "\n" + table.text();
}

nlohmann::json rows_json(const std::vector<ProfileRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const ProfileRow& row : rows) {
    list.push_back({{"name", row.name},
                    {"peak_bytes", row.bytes},
                    {"forward_ns", row.forward_ns},
                    {"backward_ns", row.backward_ns},
                    {"optimizer_ns", row.optimizer_ns},
                    {"ops", row.ops}});
  }
  return list;
}

nlohmann::json layers_json(const std::vector<ProfileRow>& layers) {
  nlohmann::json list = rows_json(layers);
  for (size_t i = 0; i < layers.size(); ++i) list[i].update(cost_json(layers[i].cost));
  return list;
}

}  // namespace

ProfileReport profile(const Graph& graph, int depth) {
  const Schedule schedule = rewrite(graph, given_order(graph), {.reuse = false});
  const Simulation simulation = simulate(graph, schedule);
  ProfileReport report;
  report.graph = std::make_shared<const Graph>(graph);
  report.op_count = static_cast<int64_t>(graph.ops.size());
  report.storage_count = static_cast<int64_t>(graph.storages.size());
  report.keep_all_peak_bytes = simulation.peak_bytes;
  report.op_time_ns = simulation.time_ns;
  Rows roles, phases, layers, kinds;
  for (size_t r = 0; r < kRoleCount; ++r) roles[name(static_cast<Role>(r))];
  phases[kBeforeTheStep];
  const std::vector<OpCost> costs = op_costs(graph);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const std::string layer = layer_of(op.scope, depth);
    phases.add_time(name(op.phase), op);
    layers.add_time(layer, op);
    layers[layer].cost.add(costs[i]);
    kinds.add_time(op.kind, op);
  }
  const std::vector<const Op*> users = first_users(graph);
  const auto belongs = [&](int64_t bytes, std::string_view role, const Op* op, bool made) {
    roles[role].bytes += bytes;
    phases[made ? name(op->phase) : kBeforeTheStep].bytes += bytes;
    layers[op != nullptr ? layer_of(op->scope, depth) : kNoLayer].bytes += bytes;
    if (made) kinds[op->kind].bytes += bytes;
  };
  for (const StorageId id : resident_at(graph, schedule, simulation.peak_step)) {
    const Storage& storage = graph.storage(id);
    belongs(storage.bytes, name(storage.role), users[index(id)], !storage.external());
  }
  if (!graph.ops.empty()) {
    const OpId peak_op = schedule.steps[simulation.peak_step].op;
    report.peak_op = op_label(graph, peak_op);
    const Op& op = graph.op(peak_op);
    belongs(op.workspace_bytes, kWorkspace, &op, true);
  }
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind == StepKind::free) continue;
    if (s == simulation.peak_step) report.peak_run = report.timeline.size();
    report.timeline.push_back(simulation.timeline[s]);
  }
  if (!schedule.steps.empty()) report.at_peak = simulation.timeline[simulation.peak_step];
  const auto by_bytes = [](const ProfileRow& row) { return std::pair(row.bytes, row.time_ns()); };
  report.roles = std::move(roles).largest_first(by_bytes);
  std::erase_if(report.roles, [](const ProfileRow& row) { return row.bytes == 0; });
  report.phases = std::move(phases).in_order();
  report.layers = std::move(layers).largest_first(by_bytes);
  report.kinds = std::move(kinds).largest_first(&ProfileRow::time_ns);
  return report;
}

std::string profile_text(const ProfileReport& report, size_t rows, const TextStyle& style) {
  std::string out = fmt::format("{}\n{} ops, {} storages\n\n", report.model, report.op_count,
                                report.storage_count);
  out += fmt::format("peak   {:>10}   everything kept; set by {}\n",
                     format_bytes(report.keep_all_peak_bytes), report.peak_op);
  if (report.eager_peak_bytes > 0) {
    out += fmt::format("eager  {:>10}   {:+.1f} %: counted while plain LibTorch ran the step\n",
                       format_bytes(report.eager_peak_bytes),
                       percent(report.eager_peak_bytes - report.keep_all_peak_bytes,
                               report.keep_all_peak_bytes));
  }
  out += fmt::format("time   {:>10}   the sum over ops", format_ns(report.op_time_ns));
  if (report.step_ns > 0) {
    out += fmt::format("; {:+.1f} % of the whole replayed step, {} (medians of {} rounds)",
                       percent(report.op_time_ns - report.step_ns, report.step_ns),
                       format_ns(report.step_ns), report.rounds);
  }
  out += "\n";
  out += "\n" + peak_chart(report.at_peak, nullptr, style);
  add_table(out, "phase", report.phases, report, report.phases.size());
  add_table(out, "layer", report.layers, report, rows);
  add_table(out, "kind of op", report.kinds, report, rows);
  return out;
}

nlohmann::json profile_json(const ProfileReport& report) {
  return {{"op_count", report.op_count},
          {"storage_count", report.storage_count},
          {"keep_all_peak_bytes", report.keep_all_peak_bytes},
          {"peak_op", report.peak_op},
          {"eager_peak_bytes", report.eager_peak_bytes},
          {"op_time_ns", report.op_time_ns},
          {"step_ns", report.step_ns},
          {"rounds", report.rounds},
          {"by_role", rows_json(report.roles)},
          {"by_phase", rows_json(report.phases)},
          {"by_layer", layers_json(report.layers)},
          {"by_kind", rows_json(report.kinds)}};
}

nlohmann::json profile_details_json(const ProfileReport& report) {
  nlohmann::json ops = ops_json(*report.graph);
  const nlohmann::json no_cost = cost_json({});
  for (const auto& [key, value] : no_cost.items()) ops[key] = nlohmann::json::array();
  for (const OpCost& cost : op_costs(*report.graph)) {
    const nlohmann::json row = cost_json(cost);
    for (const auto& [key, value] : row.items()) ops[key].push_back(value);
  }
  ops["workspace_bytes"] = nlohmann::json::array();
  for (const Op& op : report.graph->ops) ops["workspace_bytes"].push_back(op.workspace_bytes);
  nlohmann::json timeline = moments_json(report.timeline);
  timeline["peak_run"] = report.peak_run;
  return {{"ops", std::move(ops)}, {"timeline", std::move(timeline)}};
}

}  // namespace remat
