// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/strategies.h"

#include <utility>

#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"

namespace remat {
namespace {

// A strategy that does not search has nothing to count.
template <Plan (*strategy)(const Graph&, const PlanOptions&)>
Plan construct(const Graph& graph, const PlanOptions& options, Effort&) {
  return strategy(graph, options);
}

constexpr Strategy kStrategies[] = {
    {"keep_all", "recompute nothing: the baseline", construct<plan_keep_all>},
    {"recompute_all", "keep only what is external: least memory, most time",
     construct<plan_recompute_all>},
    {"every_k", "keep every k-th boundary, k = sqrt(n) by default (Chen et al. 2016)",
     construct<plan_every_k>},
    {"selective", "keep what is expensive to make, recompute what is cheap",
     construct<plan_selective>},
    {"mutwo", "the selection of mu-TWO (Purandare et al. 2023), errata fixed",
     construct<plan_mutwo>},
    {"chain_dp", "optimal dynamic programming over a chain of blocks (rotor, Beaumont et al. 2019)",
     construct<plan_chain_dp>},
    {"search", "ours: greedy by exact marginal time, then large-neighbourhood search", plan_search,
     /*searches=*/true},
    {"optimal", "exact for small graphs (MILP, HiGHS), with a proven bound for all", plan_optimal,
     /*searches=*/true},
    {"auto", "the fastest of the above that fits (default)", plan_auto, /*searches=*/true},
};

}  // namespace

std::span<const Strategy> strategies() { return kStrategies; }

Plan make_plan(const Graph& graph, std::string_view strategy, std::vector<OpId> order,
               int64_t budget_bytes) {
  const Peak peak = simulate_peak(graph, rewrite(graph, order));
  Plan plan;
  plan.order = std::move(order);
  plan.strategy = strategy;
  plan.feasible = peak.bytes <= budget_bytes;
  plan.peak_bytes = peak.bytes;
  plan.time_ns = peak.time_ns;
  return plan;
}

std::vector<OpId> first_runs(const Graph& graph, const std::vector<OpId>& order) {
  std::vector<bool> seen(graph.ops.size(), false);
  std::vector<OpId> first;
  for (const OpId op : order) {
    if (seen[index(op)]) continue;
    seen[index(op)] = true;
    first.push_back(op);
  }
  return first;
}

bool keeps_order(const Graph& graph, const std::vector<OpId>& order) {
  return first_runs(graph, order) == given_order(graph);
}

}  // namespace remat
