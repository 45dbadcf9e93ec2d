// SPDX-License-Identifier: Apache-2.0
#include "remat/core/plan.h"

#include <algorithm>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/packable.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

constexpr Strategy kStrategies[] = {
    {"keep_all", "recompute nothing: the baseline", plan_keep_all},
    {"recompute_all", "keep only what is external: least memory, most time", plan_recompute_all},
    {"every_k", "keep every k-th boundary, k = sqrt(n) by default (Chen et al. 2016)", plan_every_k},
    {"selective", "keep what is expensive to make, recompute what is cheap", plan_selective},
    {"mutwo", "the selection of mu-TWO (Purandare et al. 2023), errata fixed", plan_mutwo},
    {"chain_dp", "optimal dynamic programming over a chain of blocks (rotor, Beaumont et al. 2019)",
     plan_chain_dp},
    {"search", "ours: greedy by exact marginal time, then large-neighbourhood search", plan_search},
    {"optimal", "exact for small graphs (MILP, HiGHS), with a proven bound for all", plan_optimal},
    {"auto", "the fastest of the above that fits (default)", plan_auto},
};

std::string known_names() {
  std::string names;
  for (const Strategy& strategy : kStrategies) {
    names += (names.empty() ? "" : ", ") + std::string(strategy.name);
  }
  return names;
}

const Strategy& strategy_named(std::string_view name) {
  for (const Strategy& strategy : kStrategies) {
    if (strategy.name == name) return strategy;
  }
  throw Error(detail::concat("[plan] unknown strategy '", name, "'; expected one of ", known_names()));
}

// Whether the strategy ends with a search, which can go on from one of its plans.
bool searches(const Strategy& strategy) {
  return strategy.plan == plan_search || strategy.plan == plan_optimal || strategy.plan == plan_auto;
}

// What the strategy plans; what a search has found comes with addresses, if they are easily found.
Plan plan_with(const Strategy& strategy, const Graph& graph, const PlanOptions& options) {
  Plan plan = strategy.plan(graph, options);
  if (searches(strategy)) make_packable(graph, options, plan);
  return plan;
}

// A plan for a budget that is a little less than that of `before`.
Plan plan_tighter(const Graph& graph, const PlanOptions& options, const Strategy& strategy,
                  const Plan& before) {
  if (searches(strategy)) {
    Plan continued = continue_search(graph, options, before.order);
    continued.strategy = before.strategy;
    if (continued.feasible) {
      make_packable(graph, options, continued);
      return continued;
    }
  }
  return plan_with(strategy, graph, options);
}

// Plans for a little less wherever the addresses need more than the live bytes.
Plan plan_placed(const Graph& graph, const PlanOptions& options, const Strategy& strategy) {
  constexpr int kAttempts = 6;
  const int64_t enough =
      options.budget_bytes == kNoBudget ? 0 : options.budget_bytes - graph.external_bytes();
  PlanOptions tighter = options;
  Plan plan = plan_with(strategy, graph, options);
  // Proven for the budget that was asked for, which is more than the later ones.
  const std::optional<int64_t> bound = plan.lower_bound_time_ns;
  const std::optional<Floor> least = plan.floor;
  for (int attempt = 0; plan.peak_bytes <= options.budget_bytes && attempt < kAttempts; ++attempt) {
    if (!plan.placement) {
      plan.placement = place(graph, rewrite(graph, plan.order), {.enough_bytes = enough});
    }
    const int64_t needed = graph.external_bytes() + plan.placement->arena_bytes;
    if (needed <= options.budget_bytes) {
      plan.feasible = true;
      return plan;
    }
    tighter.budget_bytes = plan.peak_bytes - (needed - options.budget_bytes);
    if (!plan.feasible || tighter.budget_bytes < 0) break;
    plan = plan_tighter(graph, tighter, strategy, plan);
    plan.lower_bound_time_ns = bound;
    plan.floor = least;
    plan.note.clear();
  }
  plan.feasible = false;
  plan.placement.reset();
  if (plan.peak_bytes <= options.budget_bytes) {
    plan.note = "the live bytes fit, but no arena was found that does";
  }
  return plan;
}

}  // namespace

std::span<const Strategy> strategies() { return kStrategies; }

Plan plan(const Graph& graph, const PlanOptions& options) {
  if (options.budget_bytes < 0) {
    throw Error(detail::concat("[plan] budget_bytes is ", options.budget_bytes,
                               "; expected zero or more"));
  }
  const Strategy& strategy = strategy_named(options.strategy);
  return options.placed ? plan_placed(graph, options, strategy) : plan_with(strategy, graph, options);
}

std::vector<OpId> given_order(const Graph& graph) {
  std::vector<OpId> order(graph.ops.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<OpId>(i);
  return order;
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

Baseline keep_all_baseline(const Graph& graph) {
  const Peak peak = simulate_peak(graph, rewrite(graph, given_order(graph), {.reuse = false}));
  return {peak.bytes, peak.time_ns};
}

}  // namespace remat
