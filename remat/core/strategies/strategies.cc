// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/strategies.h"

#include <utility>

#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"

namespace remat {
namespace {

// A strategy that takes linear time has nothing to count.
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
    {"mutwo", "the selection of mu-TWO (Purandare et al. 2023), errata fixed", plan_mutwo},
    {"chain_dp", "optimal dynamic programming over a chain of blocks (rotor, Beaumont et al. 2019)",
     plan_chain_dp},
    {"pack_only", "pack values that are idle, where the graph says how; nothing is recomputed",
     plan_pack_only},
    {"offload_only", "offload values that are idle to the graph's channel; nothing is recomputed",
     plan_offload_only},
    {"search", "ours: greedy by exact marginal time, then large-neighbourhood search", plan_search,
     /*searches=*/true},
    {"optimal", "exact for small graphs (all states), with a proven bound for all", plan_optimal,
     /*searches=*/true},
    {"auto", "the fastest of the above that fits (default)", plan_auto, /*searches=*/true},
};

}  // namespace

std::span<const Strategy> strategies() { return kStrategies; }

int64_t most_runs(const PlanOptions& options) {
  constexpr int64_t kMostRuns = 20'000'000;
  return options.max_runs > 0 ? options.max_runs : kMostRuns;
}

Plan make_plan(const Graph& graph, std::string_view strategy, std::vector<OpId> order,
               int64_t budget_bytes) {
  const Schedule schedule = rewrite(graph, order);
  const Peak peak = simulate_peak(graph, schedule);
  Plan plan;
  // A search may end with transfers whose result no op needs; rewrite leaves them out.
  plan.order = graph.channel ? order_of(graph, schedule) : std::move(order);
  plan.strategy = strategy;
  plan.feasible = peak.bytes <= budget_bytes;
  plan.peak_bytes = peak.bytes;
  plan.time_ns = peak.time_ns;
  return plan;
}

std::vector<OpId> first_runs(const Graph& graph, const std::vector<OpId>& order) {
  std::vector<bool> seen(graph.ops.size(), false);
  std::vector<OpId> first;
  for (const OpId id : order) {
    const OpId op = graph.original(id);
    if (graph.is_move(op) || seen[index(op)]) continue;
    seen[index(op)] = true;
    first.push_back(op);
  }
  return first;
}

bool keeps_order(const Graph& graph, const std::vector<OpId>& order) {
  return first_runs(graph, order) == given_order(graph);
}

}  // namespace remat
