// SPDX-License-Identifier: Apache-2.0
// Step: plans for budgets that change, and plans that get better later.
#include <algorithm>

#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/step_implementation.h"

namespace remat {

using detail::concat;
using detail::Variant;

namespace {

// A better plan is made from the times of so many steps.
constexpr int kTimedSteps = 2;
constexpr int64_t kPlannerBytes = 128 * MiB;  // more than searches need for steps of thousands of ops

// With the times of the steps that ran since it was recorded.
Graph timed_graph(const Variant& variant) {
  Graph graph = variant.graph;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    std::vector<int64_t> samples = variant.improvement->samples_ns[i];
    if (!samples.empty()) {
      const auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
      std::ranges::nth_element(samples, middle);
      graph.ops[i].time_ns = std::max<int64_t>(1, *middle);
    }
  }
  add_moves(graph);
  return graph;
}

// The runner may have been made anew since it was last told not to time its ops.
void end_improvement(Variant& variant) {
  if (variant.runner != nullptr) {
    variant.runner->time_with(nullptr);
  }
  variant.improvement.reset();
}

}  // namespace

// A plan for it is there afterwards, and not used yet.
void Step::Implementation::find_plan(Variant& variant, int64_t budget_bytes) {
  if (variant.has_plan_for(budget_bytes)) {
    return;
  }
  detail::StepPlan made = detail::plan_step(variant.graph, options_, budget_bytes, options_.plan_seconds);
  if (const auto violation = verify(variant.graph, made.schedule, budget_bytes)) {
    throw std::logic_error(concat("remat: internal error: a plan for another budget is wrong: ",
                                  violation->reason));
  }
  variant.report.plan_seconds += made.seconds;
  variant.keep(std::move(made));
}

// For every course before it is used for any: where one has no plan, all stays as it was.
void Step::Implementation::set_budget_bytes(int64_t bytes) {
  if (bytes <= 0) {
    throw Error(concat("[step] the budget is ", bytes, " bytes; expected a positive number"));
  }
  for (const auto& each : variants_) {
    find_plan(*each, bytes);
  }
  for (const auto& each : variants_) {
    each->whole_budget_bytes = bytes;
    each->use_plan_for(bytes);
  }
  memory_limit_.reset();
  options_.budget_bytes = bytes;
  options_.budget_of = {};
  if (arena_ != nullptr && last_ != nullptr) {
    arena_->reclaim();
    arena_->use_only(std::min(arena_->bytes(), last_->placement().arena_bytes));
  }
}

// What is in it gets memory of its own, and its pages go back to the system.
void Step::Implementation::release_arena() {
  if (arena_ != nullptr) {
    arena_->reclaim();
    arena_->use_only(0);
  }
}

// After a few timed steps a better plan is looked for, while steps go on under the quick one. The call is over: nothing
// may be thrown that would look as if it had failed.
void Step::Implementation::improve(Variant& variant) {
  Variant::Improvement& improvement = *variant.improvement;
  if (improvement.better != nullptr || improvement.waits || ++improvement.steps < kTimedSteps) {
    return;
  }
  variant.runner->time_with(nullptr);
  try {
    if (detail::cpu_device().available_bytes() >= kPlannerBytes) {
      improvement.better = std::make_unique<detail::BackgroundPlan>(timed_graph(variant), options_,
                                                                    variant.planned.budget_bytes);
    } else {
      improvement.waits = true;
    }
  } catch (...) {  // no memory, no thread: the quick plan stays
    end_improvement(variant);
  }
}

// Memory is too short for an arena and a planner at once: training waits for the plan.
void Step::Implementation::plan_while_nothing_runs(Variant& variant) {
  release_arena();
  try {
    variant.graph = timed_graph(variant);
    detail::StepPlan better =
        detail::plan_step(variant.graph, options_, variant.planned.budget_bytes, options_.plan_seconds);
    end_improvement(variant);
    take_if_better(variant, std::move(better));
  } catch (const Interrupted&) {  // the next call tries again
    throw;
  } catch (...) {  // no plan was found with these times, or there is too little memory: the quick plan stays
    end_improvement(variant);
  }
}

void Step::Implementation::take_if_better(Variant& variant, detail::StepPlan better) {
  variant.report.plan_seconds += better.seconds;
  if (simulate(variant.graph, better.schedule).time_ns < simulate(variant.graph, variant.schedule()).time_ns) {
    variant.use(std::move(better));
    ++variant.report.improved_plans;
  }
  detail::cpu_device().trim();  // what planning needed
}

void Step::Implementation::take_better_plan(Variant& variant) {
  if (variant.improvement == nullptr || !variant.has_plan()) {
    return;
  }
  if (variant.improvement->waits) {
    return plan_while_nothing_runs(variant);
  }
  if (variant.improvement->better == nullptr || !variant.improvement->better->done()) {
    return;
  }
  variant.graph = variant.improvement->better->graph();  // better times, whatever comes of the plan
  // A move may have failed since: then improvement->better is gone.
  std::optional<detail::StepPlan> better = variant.improvement->better->take();
  end_improvement(variant);
  if (better && better->budget_bytes == variant.planned.budget_bytes) {
    take_if_better(variant, std::move(*better));
  }
}

}  // namespace remat
