// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/plan.h"
#include "remat/core/schedule.h"
#include "remat/libtorch/recorder.h"
#include "remat/libtorch/recording_graph.h"
#include "remat/libtorch/runner.h"
#include "remat/libtorch/step.h"

namespace remat::detail {

// One course of the program with its plan.
struct Variant {
  Trace trace;
  std::vector<size_t> program;  // ops of the trace that the program calls: all but accesses
  TraceGraph made;              // the runner refers to its recording
  Graph graph;                  // with times
  Plan plan;
  Schedule schedule;
  std::unique_ptr<Runner> runner;  // while it can use the arena
  StepReport report;               // what was measured once
  StepCounts counts;               // of the last step
  int64_t last_used = 0;

  const Recording& recording() const { return made.recording; }
  const Placement& placement() const { return *plan.placement; }
};

// Two ops of the program that are the same but for numbers that may change from step to step.
bool same_call(const SeenOp& a, const SeenOp& b);
// Another value for a constant argument of an op is no other course.
bool may_be_taken_over(const c10::OperatorHandle& op, size_t argument, const c10::IValue& recorded,
                       const c10::IValue& found);

// How many calls of the program two traces have in common at their start.
size_t common_calls(const Trace& a, const Trace& b);
// The same course, with the same things left behind.
bool same_course(const Trace& a, const Trace& b);

// Measures, plans and tries what a recorder saw. On return all tensors are as the plain run left
// them. Throws Error, with the tensors in the same state, if no plan fits the budget or if the
// planned step computes other bits than the plain one.
std::unique_ptr<Variant> make_variant(Recorder& recorder, const StepOptions& options,
                                      const std::function<std::shared_ptr<Arena>(int64_t)>& arena);

}  // namespace remat::detail
