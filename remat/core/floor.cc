// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "remat/core/order_search.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

// recompute_all is quadratic; "does it fit at all" is the first question and must not wait for it.
constexpr int64_t kMaxRuns = 300'000;
constexpr int64_t kWork = 30'000'000;  // of OrderCost: about a tenth of a second

Plan lowest_construction(const Graph& graph) {
  Plan lowest = plan_keep_all(graph, {});
  const auto consider = [&](Plan candidate) {
    if (candidate.peak_bytes < lowest.peak_bytes) lowest = std::move(candidate);
  };
  consider(plan_recompute_all(graph, {.max_runs = kMaxRuns}));
  consider(plan_selective(graph, {}));
  consider(plan_every_k(graph, {}));
  for (int64_t k = 1; k <= static_cast<int64_t>(graph.ops.size()); k *= 4) {
    consider(plan_every_k(graph, {.every_k = k}));
  }
  return lowest;
}

// Repairs the order for lower and lower budgets: large steps first, then smaller ones. A repair that
// does not reach its budget has often lowered the peak all the same.
std::vector<OpId> lower(const Graph& graph, const Plan& from) {
  OrderSearch search(graph, {.limits = {.work = kWork}});
  OrderSearch::Found best = search.start(from.order);
  for (double step = 0.6; step > 0.002 && !search.exhausted();) {
    const int64_t peak = best.cost.peak_bytes;
    search.set_budget(peak - std::max<int64_t>(1, static_cast<int64_t>(step * static_cast<double>(peak))));
    OrderSearch::Found trial = search.start(best.order);
    search.repair(trial);
    if (trial.cost.peak_bytes < peak) {
      best = std::move(trial);
    } else {
      step /= 2;
    }
  }
  return best.order;
}

}  // namespace

Plan plan_for_floor(const Graph& graph) {
  Plan lowest = lowest_construction(graph);
  // Externals alone cannot be lowered, and an order without ops uses up no work: the search for a
  // lower peak would not end.
  if (graph.ops.empty()) return lowest;
  // A search on a very long order would only use up its work.
  if (lowest.order.size() > 20 * graph.ops.size()) return lowest;
  Plan lowered = make_plan(graph, lowest.strategy, lower(graph, lowest), kNoBudget);
  return lowered.peak_bytes < lowest.peak_bytes ? lowered : lowest;
}

Floor floor(const Graph& graph) {
  const Plan lowest = plan_for_floor(graph);
  Floor result{.bytes = lowest.peak_bytes, .op = OpId{}};
  if (lowest.order.empty()) return result;
  const Schedule schedule = rewrite(graph, lowest.order);
  result.op = schedule.steps[simulate_peak(graph, schedule).step].op;
  return result;
}

}  // namespace remat
