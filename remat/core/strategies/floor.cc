// SPDX-License-Identifier: Apache-2.0

// The lowest peak we know how to reach: that of all constructions, and of the given order, lowered further
// by a search whose budget is always a little less than what it has reached.

#include <algorithm>
#include <utility>

#include "remat/core/exact/bound.h"
#include "remat/core/moves.h"
#include "remat/core/order/low_order.h"
#include "remat/core/order/reorder.h"
#include "remat/core/order/repair.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/strategies/early_updates.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

// Users ask first whether a budget is possible at all: what is quadratic is left out or cut short.
constexpr int64_t kMaxRuns = 300'000;
constexpr int64_t kMostRunsPerOp = 20;
constexpr size_t kLargestForAll = 6'000;
constexpr int64_t kWork = 12'000'000;      // for each search: some 30 ms at most
constexpr int64_t kWorkPerOpCubed = 10;    // small graphs need fewer orders, and these are shorter
constexpr int64_t kLargestForSmall = 106;  // where the two meet
// The budget is so much less than the peak at first; half of it where that is not reached.
constexpr double kFirstStep = 0.6;
constexpr double kLastStep = 0.002;
constexpr int64_t kFloorReorderPart = 20;  // of the work of a search: for another order, in each attempt to get lower
constexpr int64_t kNextSegment = 4;        // every_k is tried with segments of 1, 4, 16 ... boundaries

Plan lowest_construction(const Graph& graph, const Plan& all_again, bool keep_order,
                         int64_t least_bytes, Effort& effort) {
  Plan lowest = plan_keep_all(graph, {});
  const auto consider = [&](Plan candidate) {
    if (candidate.peak_bytes >= lowest.peak_bytes) return;
    if (keep_order && !keeps_order(graph, candidate.order)) return;
    lowest = std::move(candidate);
  };
  consider(all_again);
  consider(plan_selective(graph, {}));
  consider(plan_every_k(graph, {}));
  for (int64_t k = 1; k <= static_cast<int64_t>(graph.ops.size()); k *= kNextSegment) {
    consider(plan_every_k(graph, {.every_k = k}));
  }
  if (graph.ops.size() > kLargestForAll) return lowest;
  const int64_t longest = kMostRunsPerOp * static_cast<int64_t>(graph.ops.size());
  consider(plan_mutwo(graph, {.budget_bytes = least_bytes, .max_runs = longest}, effort));
  return lowest;
}

// The same on the graph whose updates come early, if that has any.
void consider_early_updates(const Graph& graph, int64_t least_bytes, Effort& effort, Plan& lowest,
                            std::vector<OpId>& all_again) {
  const std::optional<EarlyGraph> early = EarlyGraph::of(graph);
  if (!early) return;
  const Plan again = plan_recompute_all(early->graph(), {.max_runs = kMaxRuns});
  const Plan found =
      lowest_construction(early->graph(), again, /*keep_order=*/false, least_bytes, effort);
  if (found.peak_bytes >= lowest.peak_bytes) return;
  lowest = make_plan(graph, found.strategy, early->original(found.order), kNoBudget);
  all_again = early->original(again.order);
}

// Repairs the order for lower and lower budgets: large steps first, then smaller ones. A repair that
// does not reach its budget has often lowered the peak all the same.
std::vector<OpId> lowered(const Graph& graph, std::vector<OpId> from, bool move_ops,
                          int64_t least_bytes, const SearchStages& stages, Effort& whole) {
  const int64_t ops = static_cast<int64_t>(graph.ops.size());
  const int64_t work = ops < kLargestForSmall ? kWorkPerOpCubed * ops * ops * ops : kWork;
  Effort effort = whole.part(work);
  SearchContext context(graph, {.keep_order = !move_ops, .insert_many = stages.insert_many});
  FoundOrder best = context.start(std::move(from), effort);
  for (double step = kFirstStep; step > kLastStep && !effort.exhausted();) {
    const int64_t peak = best.cost.peak_bytes;
    if (peak <= least_bytes) break;
    const int64_t less =
        std::max<int64_t>(1, static_cast<int64_t>(step * static_cast<double>(peak)));
    context.budget_bytes = std::max(peak - less, least_bytes);
    FoundOrder trial = context.start(best.order, effort);
    reorder(context, trial, work / kFloorReorderPart, effort);
    Repair(context, effort).run(trial);
    if (trial.cost.peak_bytes < peak) {
      best = std::move(trial);
    } else {
      step /= 2;
    }
  }
  return std::move(best.order);
}

Floor set_by(const Graph& graph, const Plan& lowest) {
  Floor result{.bytes = lowest.peak_bytes, .op = OpId{}};
  if (lowest.order.empty()) return result;
  const Schedule schedule = rewrite(graph, lowest.order);
  result.op = op_behind(graph, schedule.steps[simulate_peak(graph, schedule).step].op);
  return result;
}

Plan lowest_plan(const Graph& graph, const PlanOptions& options, Effort& effort) {
  const bool keep_order = options.keep_order;
  const bool early_updates = !keep_order && options.stages.early_updates;
  const int64_t least = lower_bound_peak_bytes(graph);
  const Plan again = plan_recompute_all(graph, {.max_runs = kMaxRuns});
  std::vector<OpId> all_again = again.order;
  Plan lowest = lowest_construction(graph, again, keep_order, least, effort);
  if (early_updates) consider_early_updates(graph, least, effort, lowest, all_again);
  // Externals alone cannot be lowered, and an order without ops uses up no work: the search for a
  // lower peak would not end.
  if (graph.ops.empty()) return lowest;
  const size_t longest = static_cast<size_t>(kMostRunsPerOp) * graph.ops.size();
  const auto consider = [&](std::vector<OpId> from, bool move_ops) {
    // A search on a very long order would only use up its work.
    if (from.size() > longest) return;
    Plan plan = make_plan(graph, lowest.strategy,
                          lowered(graph, std::move(from), move_ops, least, options.stages, effort),
                          kNoBudget);
    if (plan.peak_bytes < lowest.peak_bytes) lowest = std::move(plan);
  };
  const std::vector<OpId> lowest_of_constructions = lowest.order;
  consider(lowest.order, false);
  if (keep_order) {
    consider(given_order(graph), false);
    return lowest;
  }
  consider(given_order(graph), true);
  if (early_updates) {
    if (auto early = with_early_updates(graph, given_order(graph))) consider(std::move(*early), true);
  }
  consider(low_peak_order(graph), true);
  // Where another construction is the lowest, this one often has further to go.
  if (lowest_of_constructions != all_again) consider(std::move(all_again), false);
  consider(lowest.order, true);
  return lowest;
}

// Packing and offloading get lower than running ops again. What bounds plans that only do that does not
// bound these.
Plan lowest_plan_with_moves(const Graph& graph, const PlanOptions& options, Effort& effort) {
  Plan lowest = lowest_plan(without_moves(graph), options, effort);
  for (const std::vector<OpId>& from : {lowest.order, given_order(graph)}) {
    Plan plan = make_plan(graph, "search",
                          lowered(graph, from, !options.keep_order, 0, options.stages, effort), kNoBudget);
    if (plan.peak_bytes < lowest.peak_bytes) lowest = std::move(plan);
  }
  return lowest;
}

}  // namespace

Plan plan_for_floor(const Graph& graph, const PlanOptions& options, Effort& effort) {
  Plan lowest = graph.moves.empty() ? lowest_plan(graph, options, effort)
                                    : lowest_plan_with_moves(graph, options, effort);
  if (!options.keep_order) lowest.floor = set_by(graph, lowest);
  return lowest;
}

}  // namespace remat
