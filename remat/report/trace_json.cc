// SPDX-License-Identifier: Apache-2.0
#include "remat/report/trace_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "remat/core/moves.h"
#include "remat/core/step_clock.h"

namespace remat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOpTrack = 1;
constexpr int kRecomputeTrack = 2;
constexpr int kPackTrack = 3;
constexpr int kChannelTrack = 4;

int track_of(StepKind kind) {
  switch (kind) {
    case StepKind::recompute: return kRecomputeTrack;
    case StepKind::pack:
    case StepKind::unpack: return kPackTrack;
    case StepKind::offload:
    case StepKind::prefetch: return kChannelTrack;
    default: return kOpTrack;
  }
}

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// Writes one event a line, so that a file with a hundred thousand of them is never held twice.
class TraceWriter {
 public:
  explicit TraceWriter(const Graph& graph) : graph_(graph) {}

  void add(int process, const TracedStep& step) {
    name_track("process_name", process, 0, step.name);
    name_track("thread_name", process, kOpTrack, "layers and ops");
    name_track("thread_name", process, kRecomputeTrack, "computed again");
    const auto has = [&](int track) {
      return std::ranges::any_of(step.calls, [&](const TraceCall& call) { return track_of(call.kind) == track; });
    };
    if (has(kPackTrack)) name_track("thread_name", process, kPackTrack, "packed and unpacked");
    if (has(kChannelTrack)) name_track("thread_name", process, kChannelTrack, "written and read");
    add_layers(process, step.calls);
    for (const TraceCall& call : step.calls) add_op(process, call);
    add_counters(process, step.calls);
  }

  std::string text() && {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  void event(const Json& json) {
    if (!events_.empty()) events_ += ",\n";
    events_ += json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void name_track(const char* what, int process, int track, const std::string& text) {
    event({{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", track}, {"args", {{"name", text}}}});
  }

  void slice(int process, int track, const std::string& name, std::string_view category,
             int64_t start_ns, int64_t end_ns, Json details) {
    event({{"ph", "X"},
           {"name", name},
           {"cat", category},
           {"pid", process},
           {"tid", track},
           {"ts", microseconds(start_ns)},
           {"dur", microseconds(end_ns - start_ns)},
           {"args", std::move(details)}});
  }

  // Neighbours of the same layer and phase are one slice, under which their ops lie. Recomputed ops and
  // moves have tracks of their own and cut it in two.
  void add_layers(int process, const std::vector<TraceCall>& calls) {
    for (size_t first = 0; first < calls.size();) {
      const Op& op = graph_.op(calls[first].op);
      size_t end = first + 1;
      const auto same = [&](const TraceCall& call) {
        const Op& other = graph_.op(call.op);
        return call.kind == StepKind::run && other.scope == op.scope && other.phase == op.phase;
      };
      if (calls[first].kind != StepKind::run || op.scope.empty()) {
        first = end;
        continue;
      }
      while (end < calls.size() && same(calls[end])) ++end;
      const TraceCall& last = calls[end - 1];
      slice(process, kOpTrack, op.scope, name(op.phase), calls[first].start_ns,
            last.start_ns + last.time_ns, {{"ops", end - first}});
      first = end;
    }
  }

  void add_op(int process, const TraceCall& call) {
    const Op& op = graph_.op(call.op);
    int64_t made_bytes = 0;
    for (const StorageId made : op.creates) made_bytes += graph_.storage(made).bytes;
    slice(process, track_of(call.kind), op.name, call.kind == StepKind::run ? name(op.phase) : name(call.kind),
          call.start_ns, call.start_ns + call.time_ns,
          {{"kind", op.kind},
           {"layer", graph_.op(op_behind(graph_, call.op)).scope},
           {"created_bytes", made_bytes},
           {"workspace_bytes", op.workspace_bytes},
           {"resident_bytes", call.measured_bytes.value_or(call.memory.bytes)}});
  }

  void counter(int process, const char* name, int64_t at_ns, Json series) {
    event({{"ph", "C"},
           {"name", name},
           {"pid", process},
           {"ts", microseconds(at_ns)},
           {"args", std::move(series)}});
  }

  void add_counters(int process, const std::vector<TraceCall>& calls) {
    std::array<bool, kRoleCount> used{};
    for (const TraceCall& call : calls) {
      for (size_t role = 0; role < kRoleCount; ++role) used[role] |= call.memory.by_role[role] != 0;
    }
    for (const TraceCall& call : calls) {
      Json series = Json::object();
      for (size_t role = 0; role < kRoleCount; ++role) {
        if (used[role]) series[std::string(name(static_cast<Role>(role)))] = call.memory.by_role[role];
      }
      series["workspace"] = call.memory.workspace_bytes;
      counter(process, "bytes by role", call.start_ns, std::move(series));
      if (call.measured_bytes) {
        counter(process, "measured bytes", call.start_ns, {{"bytes", *call.measured_bytes}});
      }
    }
  }

  const Graph& graph_;
  std::string events_;
};

}  // namespace

std::vector<TraceCall> planned_calls(const Graph& graph, const Schedule& schedule) {
  const Simulation simulation = simulate(graph, schedule);
  std::vector<TraceCall> calls;
  StepClock clock(graph.channel);
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const ScheduleStep& step = schedule.steps[s];
    if (step.kind == StepKind::free) continue;
    TraceCall call{.op = step.op,
                   .kind = step.kind,
                   .start_ns = simulation.timeline[s].begin_ns,
                   .time_ns = graph.op(step.op).time_ns,
                   .memory = simulation.timeline[s]};
    if (track_of(step.kind) == kChannelTrack) {
      const int64_t bytes = graph.storage(graph.move(step.op).value.storage).bytes;
      const bool write = step.kind == StepKind::offload;
      clock.wait_until(call.start_ns);
      call.time_ns = write ? graph.channel->write_ns(bytes) : graph.channel->read_ns(bytes);
      call.start_ns = (write ? clock.write(bytes) : clock.read(bytes)) - call.time_ns;
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

std::string trace_json(const Graph& graph, const std::vector<TracedStep>& steps) {
  TraceWriter writer(graph);
  for (size_t i = 0; i < steps.size(); ++i) writer.add(static_cast<int>(i) + 1, steps[i]);
  return std::move(writer).text();
}

}  // namespace remat
