// SPDX-License-Identifier: Apache-2.0
#include "remat/core/simulate.h"

#include "remat/core/error.h"
#include "remat/core/reuse.h"
#include "remat/core/step_clock.h"

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

// When the steps of a schedule begin. Without a channel no step waits, and nothing is kept by instance.
class Times {
 public:
  Times(const Graph& graph, const Schedule& schedule)
      : graph_(graph), schedule_(schedule), clock_(graph.channel) {
    if (!graph.channel) return;
    written_ns_.resize(schedule.instances.size(), 0);
    read_ns_.resize(schedule.instances.size(), 0);
  }

  int64_t begin(const ScheduleStep& step) {
    if (step.kind == StepKind::free) {
      wait(read_ns_, step.instance);
      wait(written_ns_, step.instance);
      return clock_.now_ns();
    }
    for (const InstanceId id : schedule_.reads(graph_, step)) wait(read_ns_, id);
    for (const InstanceId id : schedule_.updates(graph_, step)) wait(read_ns_, id);
    const int64_t begin_ns = clock_.now_ns();
    if (step.kind == StepKind::offload) {
      const InstanceId source = schedule_.reads(graph_, step)[0];
      note(written_ns_, source, clock_.write(bytes(source)));
    } else if (step.kind == StepKind::prefetch) {
      const InstanceId result = schedule_.creates(graph_, step)[0];
      note(read_ns_, result, clock_.read(bytes(result)));
    } else {
      checked_add(begin_ns, graph_.op(step.op).time_ns);  // a schedule may repeat ops often
      clock_.run(graph_.op(step.op).time_ns);
    }
    return begin_ns;
  }

  // What is there when the step is over was asked for by the caller.
  const StepClock& end() {
    for (const int64_t end_ns : read_ns_) clock_.wait_until(end_ns);
    return clock_;
  }

 private:
  using ByInstance = std::vector<int64_t>;

  int64_t bytes(InstanceId id) const {
    return graph_.storage(schedule_.instances[index(id)].storage).bytes;
  }
  static void note(ByInstance& ends_ns, InstanceId id, int64_t end_ns) {
    if (!ends_ns.empty()) ends_ns[index(id)] = end_ns;
  }
  void wait(const ByInstance& ends_ns, InstanceId id) {
    if (!ends_ns.empty()) clock_.wait_until(ends_ns[index(id)]);
  }

  const Graph& graph_;
  const Schedule& schedule_;
  StepClock clock_;
  ByInstance written_ns_;  // when the write of it ends
  ByInstance read_ns_;     // when it has been read
};

// Runs the model over the schedule and shows every step's Moment to `see`.
template <typename See>
StepClock walk(const Graph& graph, const Schedule& schedule, const See& see) {
  Moment now;
  Times times(graph, schedule);
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
    now.begin_ns = times.begin(step);
    if (step.kind == StepKind::free) {
      const Instance& instance = schedule.instances[index(step.instance)];
      resident(instance, -graph.storage(instance.storage).bytes);
      see(s, now);
      continue;
    }
    const Op& op = graph.op(step.op);
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
  return times.end();
}

}  // namespace

Simulation simulate(const Graph& graph, const Schedule& schedule) {
  Simulation result;
  result.peak_bytes = graph.external_bytes();
  result.timeline.resize(schedule.steps.size());
  const StepClock clock = walk(graph, schedule, [&](size_t step, const Moment& now) {
    result.timeline[step] = now;
    if (now.bytes > result.peak_bytes) {
      result.peak_bytes = now.bytes;
      result.peak_step = step;
    }
  });
  result.time_ns = clock.now_ns();
  result.waited_ns = clock.waited_ns();
  return result;
}

Peak simulate_peak(const Graph& graph, const Schedule& schedule) {
  Peak peak;
  peak.bytes = graph.external_bytes();
  const StepClock clock = walk(graph, schedule, [&](size_t step, const Moment& now) {
    if (now.bytes <= peak.bytes) return;
    peak.bytes = now.bytes;
    peak.step = step;
  });
  peak.time_ns = clock.now_ns();
  return peak;
}

}  // namespace remat
