// SPDX-License-Identifier: Apache-2.0
#include "remat/core/plan.h"

#include <algorithm>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/strategies/packable.h"
#include "remat/core/strategies/shares.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

std::string known_names() {
  std::string names;
  for (const Strategy& strategy : strategies()) {
    names += (names.empty() ? "" : ", ") + std::string(strategy.name);
  }
  return names;
}

const Strategy& strategy_named(std::string_view name) {
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == name) return strategy;
  }
  throw Error(
      detail::concat("[plan] unknown strategy '", name, "'; expected one of ", known_names()));
}

// What the strategy plans; what a search has found comes with addresses, if they are easily found.
Plan plan_with(const Strategy& strategy, const Graph& graph, const PlanOptions& options,
               Effort& effort) {
  Plan plan = strategy.plan(graph, options, effort);
  if (strategy.searches) make_packable(graph, options, effort, plan);
  return plan;
}

// A plan for a budget that is a little less than that of `before`.
Plan plan_tighter(const Graph& graph, const PlanOptions& options, const Strategy& strategy,
                  const Plan& before, Effort& effort) {
  if (strategy.searches) {
    Plan continued = continue_search(graph, options, before.order, effort);
    continued.strategy = before.strategy;
    if (continued.feasible) {
      make_packable(graph, options, effort, continued);
      return continued;
    }
  }
  return plan_with(strategy, graph, options, effort);
}

int64_t needed_bytes(const Graph& graph, const Plan& plan) {
  return graph.external_bytes() + plan.placement->arena_bytes;
}

// The plan that goes lowest, with addresses: where no search has found one that fits. Its floor is what
// it needs with addresses.
Plan lowest_placed(const Graph& graph, const PlanOptions& options, int64_t enough, Effort& effort) {
  Plan lowest = plan_for_floor(graph, options.keep_order, effort);
  lowest.placement = place(graph, rewrite(graph, lowest.order), {.enough_bytes = enough});
  const int64_t needed = needed_bytes(graph, lowest);
  lowest.feasible = needed <= options.budget_bytes;
  if (lowest.floor) {
    lowest.floor->bytes = needed;
  }
  return lowest;
}

// Plans for a little less wherever the addresses need more than the live bytes.
Plan plan_placed(const Graph& graph, const PlanOptions& options, const Strategy& strategy,
                 Effort& effort) {
  constexpr int kAttempts = 6;
  const int64_t enough =
      options.budget_bytes == kNoBudget ? 0 : options.budget_bytes - graph.external_bytes();
  PlanOptions tighter = options;
  Plan plan = plan_with(strategy, graph, options, effort);
  // Proven for the budget that was asked for, which is more than the later ones.
  const std::optional<int64_t> bound = plan.lower_bound_time_ns;
  const std::optional<Floor> least = plan.floor;
  for (int attempt = 0; plan.peak_bytes <= options.budget_bytes && attempt < kAttempts; ++attempt) {
    if (!plan.placement) {
      plan.placement = place(graph, rewrite(graph, plan.order), {.enough_bytes = enough});
    }
    const int64_t needed = needed_bytes(graph, plan);
    if (needed <= options.budget_bytes) {
      plan.feasible = true;
      return plan;
    }
    tighter.budget_bytes = plan.peak_bytes - (needed - options.budget_bytes);
    if (!plan.feasible || tighter.budget_bytes < 0) break;
    plan = plan_tighter(graph, tighter, strategy, plan, effort);
    plan.lower_bound_time_ns = bound;
    plan.floor = least;
    plan.note.clear();
  }
  Plan lowest = lowest_placed(graph, options, enough, effort);
  if (lowest.feasible && strategy.searches) {
    lowest.lower_bound_time_ns = bound;
    lowest.floor = least;
    return lowest;
  }
  plan.feasible = false;
  plan.floor = lowest.floor;
  plan.placement.reset();
  if (plan.peak_bytes <= options.budget_bytes) {
    plan.note = "the live bytes fit, but no arena was found that does";
  }
  return plan;
}

}  // namespace

Plan plan(const Graph& graph, const PlanOptions& options) {
  if (options.budget_bytes < 0) {
    throw Error(
        detail::concat("[plan] budget_bytes is ", options.budget_bytes, "; expected zero or more"));
  }
  const Strategy& strategy = strategy_named(options.strategy);
  Effort effort = effort_of_plan(options);
  return options.placed ? plan_placed(graph, options, strategy, effort)
                        : plan_with(strategy, graph, options, effort);
}

Baseline keep_all_baseline(const Graph& graph) {
  const Peak peak = simulate_peak(graph, rewrite(graph, given_order(graph), {.reuse = false}));
  return {peak.bytes, peak.time_ns};
}

Floor floor(const Graph& graph) {
  Effort effort;
  return *plan_for_floor(graph, /*keep_order=*/false, effort).floor;
}

Floor floor(const Graph& graph, const Plan& plan) {
  return plan.floor ? *plan.floor : floor(graph);
}

}  // namespace remat
