// SPDX-License-Identifier: Apache-2.0
// Step: plans for budgets that are short, change, or get a better plan later.
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
// Memory is short if a tenth of the budget, or less, is left, or if the system waits for memory for a
// tenth of the time; then the budget falls by a tenth.
constexpr int64_t kShortOfBudget = 10;
constexpr double kStalledPercent = 10;
constexpr int64_t kStepDown = 10;

}  // namespace

// A course keeps the plans that were made for it.
void Step::Implementation::plan_for(Variant& variant, int64_t budget_bytes) {
  if (variant.planned.budget_bytes == budget_bytes || variant.use_earlier(budget_bytes)) {
    return;
  }
  detail::StepPlan made = detail::plan_step(variant.graph, options_, budget_bytes, options_.plan_seconds);
  if (const auto violation = verify(variant.graph, made.schedule, budget_bytes)) {
    throw std::logic_error(concat("remat: internal error: a plan for another budget is wrong: ",
                                  violation->reason));
  }
  variant.report.plan_seconds += made.seconds;
  variant.use(std::move(made));
}

void Step::Implementation::set_budget_bytes(int64_t bytes) {
  if (bytes <= 0) {
    throw Error(concat("[step] the budget is ", bytes, " bytes; expected a positive number"));
  }
  if (last_ != nullptr) {
    plan_for(*last_, bytes);
    if (arena_ != nullptr) {
      arena_->reclaim();
      arena_->use_only(std::min(arena_->bytes(), last_->placement().arena_bytes));
    }
  }
  budget_bytes_ = bytes;
  options_.budget_bytes = bytes;
  options_.budget_of = {};
}

// After a few timed steps a better plan is looked for, while steps go on under the quick one.
void Step::Implementation::improve(Variant& variant) {
  Variant::Improvement& improvement = *variant.improvement;
  if (improvement.better != nullptr || ++improvement.steps < kTimedSteps) {
    return;
  }
  Graph graph = variant.graph;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    std::vector<int64_t>& samples = improvement.samples_ns[i];
    if (!samples.empty()) {
      const auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
      std::ranges::nth_element(samples, middle);
      graph.ops[i].time_ns = std::max<int64_t>(1, *middle);
    }
  }
  add_moves(graph);
  variant.runner->time_with(nullptr);
  const int64_t budget_bytes = variant.planned.budget_bytes;
  if (detail::cpu_device().available_bytes() >= kPlannerBytes) {
    improvement.better = std::make_unique<detail::BackgroundPlan>(std::move(graph), options_, budget_bytes);
    return;
  }
  // Memory is too short for an arena and a planner at once: training waits for the plan.
  arena_->reclaim();
  arena_->use_only(0);
  variant.graph = std::move(graph);
  variant.improvement.reset();
  take_if_better(variant, detail::plan_step(variant.graph, options_, budget_bytes, options_.plan_seconds));
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
  if (variant.improvement == nullptr || variant.improvement->better == nullptr ||
      !variant.improvement->better->done()) {
    return;
  }
  variant.graph = variant.improvement->better->graph();  // better times, whatever comes of the plan
  // A move may have failed since: then improvement->better is gone.
  std::optional<detail::StepPlan> better = variant.improvement->better->take();
  variant.improvement.reset();
  if (better && better->budget_bytes == variant.planned.budget_bytes) {
    take_if_better(variant, std::move(*better));
  }
}

// Memory that others need is given back where a plan can do without; later it is taken again.
void Step::Implementation::adapt_to_memory() {
  if (last_ == nullptr || !last_->has_plan()) {
    return;
  }
  const detail::MemoryPressure found = detail::cpu_device().memory_pressure();
  const int64_t now = last_->planned.budget_bytes;
  const int64_t whole = budget_before_.value_or(now);
  if (now == kNoBudget) {
    return;
  }
  const int64_t time_before_ns = last_->plan().time_ns;
  const auto change_to = [&](int64_t bytes, const char* why) {
    set_budget_bytes(bytes);
    budget_before_ = bytes < whole ? std::optional(whole) : std::nullopt;
    say(concat(why, " (", format_bytes(found.left_bytes), " left, ", found.stalled_percent,
               " % of the time spent waiting for it): the budget goes from ", format_bytes(now), " to ",
               format_bytes(bytes), ", and a step is planned to take ",
               static_cast<double>(last_->plan().time_ns) / static_cast<double>(time_before_ns),
               " of the time"));
  };
  if (found.left_bytes < now / kShortOfBudget || found.stalled_percent > kStalledPercent) {
    if (arena_ != nullptr) {  // planning needs memory, too
      arena_->reclaim();
      arena_->use_only(0);
    }
    const int64_t less = std::max(last_->graph.external_bytes(), now - now / kStepDown);
    // As far as plans go; where none needs less, everything stays as it is.
    const auto try_for = [&](int64_t bytes) {
      try {
        change_to(bytes, "memory is short");
        return now;
      } catch (const Infeasible& infeasible) {
        return infeasible.floor_bytes;
      }
    };
    if (const int64_t least = try_for(less); least < now) {
      try_for(least);
    }
  } else if (now < whole && found.left_bytes > whole - now + whole / kStepDown &&
             found.stalled_percent == 0) {
    change_to(whole, "memory is there again");
  }
}

}  // namespace remat
