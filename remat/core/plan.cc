// SPDX-License-Identifier: Apache-2.0
#include "remat/core/plan.h"

#include <algorithm>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/moves.h"
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

bool may_move(const Strategy& strategy, const Graph& graph) {
  return strategy.searches && !graph.moves.empty();
}

Plan plan_recomputing(const Strategy& strategy, const Graph& graph, const PlanOptions& options,
                      Effort& effort) {
  Effort own = effort.part_of_time(kWithoutMovesPart);
  return strategy.plan(without_moves(graph), options, own);
}

// What the strategy plans; what a search has found comes with addresses, if they are easily found.
Plan plan_with(const Strategy& strategy, const Graph& graph, const PlanOptions& options,
               Effort& effort) {
  Plan plan = may_move(strategy, graph)
                  ? plan_with_moves(graph, options,
                                    plan_recomputing(strategy, graph, options, effort), effort)
                  : strategy.plan(graph, options, effort);
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

// With a limit on orders instead of time, finding addresses has none.
int64_t place_work(const Graph& graph, const PlanOptions& options, double share) {
  return options.max_orders > 0 ? Effort::kUnlimited : work_share(graph, options, share);
}

Placement addresses(const Graph& graph, const std::vector<OpId>& order, int64_t enough_bytes, Effort& effort) {
  return place(graph, rewrite(graph, order), {.enough_bytes = enough_bytes}, effort);
}

int64_t needed_bytes(const Graph& graph, const Plan& plan) {
  return graph.external_bytes() + plan.placement->arena_bytes;
}

// The plan that goes lowest, with addresses: where no search has found one that fits. Its floor is what
// it needs with addresses.
Plan lowest_placed(const Graph& graph, const PlanOptions& options, int64_t enough, Effort& effort) {
  Plan lowest = plan_for_floor(graph, options, effort);
  Effort placing = effort.part(place_work(graph, options, kPlaceShare));
  lowest.placement = addresses(graph, lowest.order, enough, placing);
  const int64_t needed = needed_bytes(graph, lowest);
  lowest.feasible = needed <= options.budget_bytes;
  if (lowest.floor) {
    lowest.floor->bytes = needed;
  }
  return lowest;
}

// Whether the plan, or one for a little less wherever the addresses need more than the live bytes, has
// addresses inside the budget. All tries share the effort.
bool place_inside(const Graph& graph, const PlanOptions& options, const Strategy& strategy, Plan& plan,
                  int64_t enough, Effort& effort) {
  constexpr int kAttempts = 6;  // more were never needed
  PlanOptions tighter = options;
  // Proven for the budget that was asked for, which is more than the later ones.
  const std::optional<int64_t> bound = plan.lower_bound_time_ns;
  const std::optional<Floor> least = plan.floor;
  for (int attempt = 0; plan.peak_bytes <= options.budget_bytes && attempt < kAttempts; ++attempt) {
    if (!plan.placement) {
      Effort placing = effort.part(place_work(graph, options, kPlaceShare));
      plan.placement = addresses(graph, plan.order, enough, placing);
    }
    const int64_t needed = needed_bytes(graph, plan);
    if (needed <= options.budget_bytes) {
      plan.feasible = true;
      return true;
    }
    tighter.budget_bytes = plan.peak_bytes - (needed - options.budget_bytes);
    if (!plan.feasible || tighter.budget_bytes < 0) break;
    plan = plan_tighter(graph, tighter, strategy, plan, effort);
    plan.lower_bound_time_ns = bound;
    plan.floor = least;
    plan.note.clear();
  }
  return false;
}

// Of a plan that only recomputes, where it was free to do more.
Plan chosen_among_moves(const Graph& graph, Plan plan) {
  plan.bound_without_moves_ns = std::exchange(plan.lower_bound_time_ns, graph.total_time_ns());
  plan.floor.reset();  // with moves it is lower
  return plan;
}

Plan plan_placed(const Graph& graph, const PlanOptions& options, const Strategy& strategy,
                 Effort& whole) {
  Effort effort = whole.part_of_time(kAboveFloorPart);
  const int64_t enough =
      options.budget_bytes == kNoBudget ? 0 : options.budget_bytes - graph.external_bytes();
  std::optional<Plan> recomputing;
  Plan plan;
  if (may_move(strategy, graph)) {
    recomputing = plan_recomputing(strategy, graph, options, effort);
    plan = plan_with_moves(graph, options, *recomputing, effort);
    make_packable(graph, options, effort, plan);
  } else {
    plan = plan_with(strategy, graph, options, effort);
  }
  const std::optional<int64_t> bound = plan.lower_bound_time_ns;
  const std::optional<Floor> least = plan.floor;
  Effort placing = effort.part(place_work(graph, options, kInsideShare));
  // A plan that only recomputes may follow.
  Effort first = placing.part(recomputing ? placing.left() / 2 : Effort::kUnlimited);
  const bool inside = place_inside(graph, options, strategy, plan, enough, first);
  // What moves leaves gaps that are hard to fill, and may have cost more than it was worth.
  const auto better = [&] { return recomputing->feasible && (!inside || recomputing->time_ns < plan.time_ns); };
  if (recomputing && better()) {
    const Graph fewer = without_moves(graph);
    make_packable(fewer, options, effort, *recomputing);
    if (place_inside(fewer, options, strategy, *recomputing, enough, placing) && better()) {
      return chosen_among_moves(graph, *std::move(recomputing));
    }
  }
  if (inside) return plan;
  Plan lowest = lowest_placed(graph, options, enough, whole);
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
  Effort effort = effort_of_plan(options);
  return plan(graph, options, effort);
}

Plan plan(const Graph& graph, const PlanOptions& options, Effort& effort) {
  if (options.budget_bytes < 0) {
    throw Error(
        detail::concat("[plan] budget_bytes is ", options.budget_bytes, "; expected zero or more"));
  }
  const Strategy& strategy = strategy_named(options.strategy);
  return options.placed ? plan_placed(graph, options, strategy, effort)
                        : plan_with(strategy, graph, options, effort);
}

Baseline keep_all_baseline(const Graph& graph) {
  const Peak peak = simulate_peak(graph, rewrite(graph, given_order(graph), {.reuse = false}));
  return {peak.bytes, peak.time_ns};
}

Floor floor(const Graph& graph, const PlanOptions& limits) {
  Effort effort = effort_of_plan(limits);
  return *plan_for_floor(graph, {.stages = limits.stages}, effort).floor;
}

Floor floor(const Graph& graph, const Plan& plan, const PlanOptions& limits) {
  return plan.floor ? *plan.floor : floor(graph, limits);
}

}  // namespace remat
