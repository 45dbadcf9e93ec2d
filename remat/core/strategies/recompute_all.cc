// SPDX-License-Identifier: Apache-2.0

// The memory-poor extreme: past the turning point no activation is ever kept. Each backward op has
// what it reads made again from the externals, right before it, and everything is forgotten right
// after it. A chain of n layers re-runs 1 + 2 + ... + n forward ops: quadratic, hence max_runs.

#include "remat/core/analysis/recompute.h"
#include "remat/core/error.h"
#include "remat/core/strategies/strategies.h"
#include "remat/core/units.h"

namespace remat {

Plan plan_recompute_all(const Graph& graph, const PlanOptions& options) {
  const Uses uses = uses_of(graph);
  std::vector<Drop> drops;
  std::vector<Decision> decisions;
  for (const Candidate& candidate : candidates_of(graph, uses, turning_point(graph))) {
    drops.push_back({candidate.storage, candidate.last_before});
    for (const OpId use : uses[candidate.storage]) {
      if (use >= candidate.first_after) drops.push_back({candidate.storage, use});
    }
    decisions.push_back({candidate.storage, true, "this strategy keeps no activation"});
  }
  const int64_t max_runs = most_runs(options);
  Recomputation made = order_with_drops(graph, uses, drops, {.share = false, .max_runs = max_runs});
  if (!made.complete) {
    return keep_all_instead(graph, options, "recompute_all",
                            detail::concat("recomputing everything takes more than ", max_runs,
                                           " runs; this is the plan that keeps everything instead"));
  }
  Plan plan =
      make_plan(graph, "recompute_all", std::move(made.order), options.budget_bytes);
  plan.decisions = std::move(decisions);
  return plan;
}

}  // namespace remat
