// SPDX-License-Identifier: Apache-2.0
// Step: less memory while the machine or the cgroup is short of it, and all of the budget when it no longer is.
#include <algorithm>

#include "remat/core/error.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/step_implementation.h"

namespace remat {

using detail::concat;
using detail::Variant;

namespace {

// Memory is short if a twentieth of what the budget leaves for the arena, or less, is left beside it, or if the system
// waits for memory for a tenth of the time. A budget of available_memory() is nine tenths of what was left: a ninth of
// its arena stays, which others, and what is in no budget, may come to use; only when half of that is gone is somebody
// else to blame. Where a fifteenth of the arena would still be left beside the whole of it, there is enough again.
constexpr int64_t kShortOfArena = 20;
constexpr int64_t kEnoughOfArena = 15;
constexpr double kStalledPercent = 10;
constexpr int64_t kStepDown = 10;  // then the budget falls by a tenth

}  // namespace

// What a course may use now. While memory is short no more than the limit, as far as there are plans.
int64_t Step::Implementation::budget_of(const Variant& variant) const {
  const int64_t limit = std::max(memory_limit_.value_or(kNoBudget), variant.least_planned_bytes);
  return std::min(variant.whole_budget_bytes, limit);
}

// The plan for what the course may use now, made before or now. Where memory is short and there is none, the one that
// needs least: a step that takes more memory than there should be is better than none.
void Step::Implementation::plan_for(Variant& variant) {
  bool tried_floor = false;
  while (true) {
    const int64_t budget_bytes = budget_of(variant);
    try {
      find_plan(variant, budget_bytes);
      break;
    } catch (const Infeasible& infeasible) {
      if (budget_bytes >= variant.whole_budget_bytes) {
        throw;
      }
      const int64_t known = variant.next_planned_budget(budget_bytes);
      const bool may_do = !tried_floor && infeasible.floor_bytes > budget_bytes;
      variant.least_planned_bytes = may_do ? std::min(known, infeasible.floor_bytes) : known;
      tried_floor = true;
    }
  }
  variant.use_plan_for(budget_of(variant));
  if (tried_floor) {
    say(concat("memory is short, and there is no plan for less than ", format_bytes(variant.planned.budget_bytes),
               " of this course of the step, whose budget stays there"));
  }
}

// Looks at the memory that is left, before a call.
void Step::Implementation::adapt_to_memory() {
  if (last_ == nullptr || !last_->has_plan() || last_->whole_budget_bytes == kNoBudget) {
    return;
  }
  const detail::MemoryPressure found = detail::cpu_device().memory_pressure();
  const int64_t outside_bytes = last_->graph.external_bytes();
  const int64_t whole = last_->whole_budget_bytes;
  const int64_t now = last_->planned.budget_bytes;
  const auto change = [&](const char* why) {
    const int64_t time_before_ns = std::max<int64_t>(1, last_->plan().time_ns);
    plan_for(*last_);
    if (last_->planned.budget_bytes == now) {
      return;
    }
    say(concat(why, " (", format_bytes(found.left_bytes), " left, ", found.stalled_percent,
               " % of the time spent waiting for it): the budget goes from ", format_bytes(now), " to ",
               format_bytes(last_->planned.budget_bytes), ", and a step is planned to take ",
               static_cast<double>(last_->plan().time_ns) / static_cast<double>(time_before_ns),
               " of the time"));
  };
  if (found.left_bytes < (now - outside_bytes) / kShortOfArena || found.stalled_percent > kStalledPercent) {
    const int64_t less = std::max(outside_bytes, now - now / kStepDown);
    if (less < now && now > last_->least_planned_bytes) {
      memory_limit_ = less;
      release_arena();  // planning needs memory, too
      change("memory is short");
    }
  } else if (memory_limit_ && found.stalled_percent == 0 &&
             found.left_bytes > whole - now + (whole - outside_bytes) / kEnoughOfArena) {
    memory_limit_.reset();
    change("memory is there again");
  }
}

}  // namespace remat
