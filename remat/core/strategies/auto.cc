// SPDX-License-Identifier: Apache-2.0

// The portfolio: every other strategy; the fastest plan that fits wins, or the one with the lowest peak
// if none does.

#include "remat/core/bound.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

// The bound says how good the plan is and does not change it, so the clock may end it.
constexpr size_t kLargestBounded = 2'000;
constexpr double kBoundShare = 0.2;

bool better(const Plan& a, const Plan& b) {
  if (a.feasible != b.feasible) return a.feasible;
  if (!a.feasible) return a.peak_bytes < b.peak_bytes;
  if (a.time_ns != b.time_ns) return a.time_ns < b.time_ns;
  return a.peak_bytes < b.peak_bytes;
}

}  // namespace

Plan plan_auto(const Graph& graph, const PlanOptions& options) {
  Plan best = plan_keep_all(graph, options);
  const auto consider = [&](Plan candidate) {
    if (better(candidate, best)) best = std::move(candidate);
  };
  if (!best.feasible) {  // if it is, nothing is faster
    consider(plan_search(graph, options));
  }
  // search starts from all of these but chain_dp, so they win only where it ran out of work; if it
  // found nothing that fits, neither will they.
  if (best.feasible && best.strategy == "search") {
    consider(plan_selective(graph, options));
    consider(plan_every_k(graph, options));
    if (graph.ops.size() <= kLargestForMutwo) consider(plan_mutwo(graph, options));
    consider(plan_chain_dp(graph, options));
  }
  if (best.feasible && graph.ops.size() <= kLargestBounded) {
    best.lower_bound_time_ns = lower_bound_time_ns(
        graph, options.budget_bytes,
        {.time_limit_seconds = kBoundShare * options.time_limit_seconds, .enough_ns = best.time_ns});
  }
  return best;
}

}  // namespace remat
