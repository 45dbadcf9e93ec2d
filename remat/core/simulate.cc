// SPDX-License-Identifier: Apache-2.0
#include "remat/core/simulate.h"

#include "remat/core/error.h"
#include "remat/core/reuse.h"

namespace remat {
namespace {

int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw Error("[simulate] the schedule's bytes or nanoseconds do not fit into 64 bits");
  }
  return sum;
}

size_t role_of(const Graph& graph, const Instance& instance) {
  return static_cast<size_t>(graph.storage(instance.storage).role);
}

// Runs the model over the schedule and shows every step's Moment to `see`.
template <typename See>
int64_t walk(const Graph& graph, const Schedule& schedule, const See& see) {
  Moment now;
  int64_t time_ns = 0;
  const auto resident = [&](const Instance& instance, int64_t bytes) {
    // A schedule from a file may hold any number of copies of a storage at once.
    now.bytes = checked_add(now.bytes, bytes);
    now.by_role[role_of(graph, instance)] += bytes;
  };
  for (size_t i = 0; i < graph.external_count; ++i) {
    resident(schedule.instances[i], graph.storages[i].bytes);
  }
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const ScheduleStep& step = schedule.steps[s];
    if (step.kind == StepKind::free) {
      const Instance& instance = schedule.instances[index(step.instance)];
      resident(instance, -graph.storage(instance.storage).bytes);
      see(s, now);
      continue;
    }
    const Op& op = graph.op(step.op);
    time_ns = checked_add(time_ns, op.time_ns);
    // The bytes a result shares with the input whose place it takes are counted once, as the
    // result's; what is left of a larger input stays until the op is done.
    for (const InstanceId id : schedule.creates(graph, step)) {
      const Instance& result = schedule.instances[index(id)];
      const int64_t bytes = graph.storage(result.storage).bytes;
      resident(result, bytes);
      if (result.in_place_of == kNoInstance) continue;
      const Instance& source = schedule.instances[index(result.in_place_of)];
      resident(source, -shared_bytes(bytes, graph.storage(source.storage).bytes));
    }
    now.bytes = checked_add(now.bytes, op.workspace_bytes);
    now.workspace_bytes = op.workspace_bytes;
    see(s, now);
    now.bytes -= op.workspace_bytes;
    now.workspace_bytes = 0;
    for (const InstanceId id : schedule.creates(graph, step)) {
      const Instance& result = schedule.instances[index(id)];
      if (result.in_place_of == kNoInstance) continue;
      const Instance& source = schedule.instances[index(result.in_place_of)];
      const int64_t source_bytes = graph.storage(source.storage).bytes;
      resident(source,
               shared_bytes(graph.storage(result.storage).bytes, source_bytes) - source_bytes);
    }
  }
  return time_ns;
}

}  // namespace

Simulation simulate(const Graph& graph, const Schedule& schedule) {
  Simulation result;
  result.peak_bytes = graph.external_bytes();
  result.timeline.resize(schedule.steps.size());
  result.time_ns = walk(graph, schedule, [&](size_t step, const Moment& now) {
    result.timeline[step] = now;
    if (now.bytes > result.peak_bytes) {
      result.peak_bytes = now.bytes;
      result.peak_step = step;
    }
  });
  return result;
}

Peak simulate_peak(const Graph& graph, const Schedule& schedule) {
  Peak peak;
  peak.bytes = graph.external_bytes();
  peak.time_ns = walk(graph, schedule, [&](size_t step, const Moment& now) {
    if (now.bytes <= peak.bytes) return;
    peak.bytes = now.bytes;
    peak.step = step;
  });
  return peak;
}

}  // namespace remat
