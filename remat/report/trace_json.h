// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"
#include "remat/core/simulate.h"

namespace remat {

// One call of an op or a move, for whoever looks at a step as a timeline.
struct TraceCall {
  OpId op{};
  StepKind kind = StepKind::run;
  int64_t start_ns = 0;  // from the start of the step
  int64_t time_ns = 0;
  Moment memory = {};                           // by the memory model, while the op runs
  std::optional<int64_t> measured_bytes = {};   // counted by the allocator; none in a plan
};

// One step, one row of processes in the viewer: "plain", "planned inside 1.5 GiB".
struct TracedStep {
  std::string name;
  std::vector<TraceCall> calls;
};

// The calls of a schedule: times of the graph, bytes of simulate. Transfers are as long as they take.
std::vector<TraceCall> planned_calls(const Graph& graph, const Schedule& schedule);

// Steps in the JSON format of Chrome's tracing, which ui.perfetto.dev and chrome://tracing open. Each has a
// track of layers with their ops below, tracks of recomputed ops, of packing and of transfers, and counters: bytes by role and, where
// they were measured, the allocator's count. Times in the file are microseconds.
std::string trace_json(const Graph& graph, const std::vector<TracedStep>& steps);

}  // namespace remat
