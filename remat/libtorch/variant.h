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
#include "remat/libtorch/step_plan.h"

namespace remat::detail {

// One course of the program with its plan.
struct Variant {
  Trace trace;
  std::vector<size_t> program;  // ops of the trace that the program calls: all but accesses
  TraceGraph made;              // the runner refers to its recording
  Graph graph;                  // with times
  StepPlan planned;
  std::vector<StepPlan> others;    // made before, for other budgets
  int64_t whole_budget_bytes = kNoBudget;  // as the user has it, however short memory is
  int64_t least_planned_bytes = 0;         // no plan has been found for less, while memory was short
  std::unique_ptr<Runner> runner;  // while it can use the arena
  StepReport report;               // what was measured once
  StepCounts counts;               // of the last step
  int64_t last_used = 0;
  // A course that takes long is planned quickly at first. Its next steps are timed, and a better plan
  // is made meanwhile.
  struct Improvement {
    std::vector<std::vector<int64_t>> samples_ns;  // by op
    int steps = 0;                                 // that were timed
    Timing timing{samples_ns, 0};
    std::unique_ptr<BackgroundPlan> better = {};
    // Memory is too short for a planner beside the arena: it plans before the next call, while nothing runs.
    bool waits = false;
  };
  std::unique_ptr<Improvement> improvement;
  std::optional<int64_t> least_bytes;  // see floor_bytes()

  const Recording& recording() const { return made.recording; }
  // Not from when it did without something that failed until a call of it is planned again.
  bool has_plan() const { return planned.plan.placement.has_value(); }
  const Plan& plan() const { return planned.plan; }
  const Schedule& schedule() const { return planned.schedule; }
  const Placement& placement() const { return *planned.plan.placement; }

  bool has_plan_for(int64_t budget_bytes) const;
  // The least budget above this one that there is a plan for; the whole one if there is none.
  int64_t next_planned_budget(int64_t budget_bytes) const;
  // Kept for its budget.
  void keep(StepPlan other);
  // Another plan is used from now on; the one before it, if there is one, is kept for its budget.
  void use(StepPlan other);
  // The plan for a budget, which must be there, is used from now on.
  void use_plan_for(int64_t budget_bytes);

  // The least that a plan is known to need. Looked for once, since that takes as long as a plan.
  int64_t floor_bytes();

  // Does without a packed form, or without the channel, that has failed. All plans are forgotten.
  void do_without(const MoveFailed& failed);
};

// The step's arena, of at least so many bytes.
using ArenaSource = std::function<std::shared_ptr<Arena>(int64_t)>;

// Two ops of the program that are the same but for numbers that may change from step to step.
bool same_call(const SeenOp& a, const SeenOp& b);
// Another value for a constant argument of an op is no other course.
bool may_be_taken_over(const c10::OperatorHandle& op, size_t argument, const c10::IValue& recorded,
                       const c10::IValue& found);

// How many calls of the program two traces have in common at their start.
size_t common_calls(const Trace& a, const Trace& b);
// The same course, with the same things left behind.
bool same_course(const Trace& a, const Trace& b);

// Told that the channel has failed, and is done without.
using ChannelLoss = std::function<void(const MoveFailed&)>;

// Measures, plans and tries what a recorder saw, inside the budget; the first plan may be that of a `known` course
// with another size of the batch. On return all tensors are as the
// plain run left them. Throws Error, with the tensors in the same state, if no plan fits the budget or if the
// planned step computes other bits than the plain one.
// `channel`: how fast the one of the options is. `memory_limit`: what a plan shall need, as far as there is one;
// kNoBudget: its budget.
std::unique_ptr<Variant> make_variant(Recorder& recorder, const StepOptions& options,
                                      const std::optional<ChannelModel>& channel,
                                      const ChannelLoss& channel_failed, const ArenaSource& arena,
                                      const std::vector<std::unique_ptr<Variant>>& known, int64_t memory_limit);

// What is said of it.
std::string notice_of(const MoveFailed& failed);
// It happened when parameters had been written that nobody can put back.
[[noreturn]] void throw_half_done(const MoveFailed& failed);

}  // namespace remat::detail
