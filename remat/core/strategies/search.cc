// SPDX-License-Identifier: Apache-2.0

// Ours: start from the best construction there is, then search on the exact model (order_search.h).
//
//  1. starts: the given order, or another order of the same ops where that is allowed and lowers the
//     peak; constructions of others (mutwo, selective, every_k); the order behind floor();
//  2. each is made to fit by peak-aware greedy on exact marginal time, and needless re-runs are taken
//     back;
//  3. the fastest is annealed, if the graph is small: ops moved, inserted and erased one by one;
//  4. large-neighbourhood search: ruin a few re-runs, repair, take back, until the limit.
//
// The limit counts work, not seconds, so that the same input gives the same plan on a slow or loaded
// machine too; the clock only ends a search that takes four times as long as it should.

#include <algorithm>
#include <utility>

#include "remat/core/order_search.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

// OrderCost's work units in a second of the time limit. One takes about 2.5 ns here, so that an idle
// machine is done after about a quarter of the limit.
constexpr double kWorkPerSecond = 1e8;

// Annealing needs some thousand orders per op to be worth it.
constexpr size_t kLargestAnnealed = 500;




class Searcher {
 public:
  Searcher(const Graph& graph, const PlanOptions& options)
      : graph_(graph),
        options_(options),
        search_(graph, {.budget_bytes = options.budget_bytes,
                        .keep_order = options.keep_order,
                        .seed = options.seed,
                        .limits = limits(1.0)}) {}

  Plan plan() {
    OrderSearch::Found best = search_.start(given_order(graph_));
    if (!best.fits && make_fit(best)) {
      search_.set_limits(limits(1.0));
      if (graph_.ops.size() <= kLargestAnnealed) search_.anneal(best, 0.5);
      search_.prune(best, best.order.size());
      search_.improve(best, [&](const OrderSearch::Found& found) { report(found); });
    }
    return make_plan(graph_, "search", best.order, options_.budget_bytes);
  }

 private:
  SearchLimits limits(double share) const {
    if (options_.max_moves > 0) {
      const double work = static_cast<double>(options_.max_moves) *
                          static_cast<double>(OrderCost::kWorkPerOp * graph_.ops.size());
      return {.work = static_cast<int64_t>(work * share)};
    }
    const auto seconds = std::chrono::duration<double>(options_.time_limit_seconds * share);
    return {.work = static_cast<int64_t>(kWorkPerSecond * seconds.count()),
            .deadline = started_ + std::chrono::duration_cast<std::chrono::nanoseconds>(seconds)};
  }

  // The fastest order that fits, of all starts. "It does not fit at all" must be said at once, so the
  // lowest peak we know comes first: below it there is one try to get lower still.
  bool make_fit(OrderSearch::Found& best) {
    OrderSearch::Found lowest = search_.start(plan_for_floor(graph_).order);
    search_.set_limits(limits(0.1));
    if (!lowest.fits && !search_.repair(lowest)) {
      if (lowest.cost.peak_bytes < best.cost.peak_bytes) best = std::move(lowest);
      return false;
    }
    OrderSearch::Found reordered = best;
    search_.set_limits(limits(0.25));
    search_.reorder(reordered, 50'000);
    search_.set_limits(limits(0.5));
    finish(reordered, best);
    for (OrderSearch::Found& start : constructions()) finish(start, best);
    if (!best.fits) best = std::move(lowest);
    return true;
  }

  // Makes the start fit, if it can, and keeps it if it is better than the best.
  void finish(OrderSearch::Found& start, OrderSearch::Found& best) {
    if (!start.fits) search_.repair(start);
    if (start.fits) search_.prune(start, start.order.size());
    const bool better = start.fits != best.fits
                            ? start.fits
                            : start.fits ? start.cost.time_ns < best.cost.time_ns
                                         : start.cost.peak_bytes < best.cost.peak_bytes;
    if (better) best = std::move(start);
  }

  std::vector<OrderSearch::Found> constructions() {
    std::vector<OrderSearch::Found> starts;
    for (const auto construct : {plan_mutwo, plan_selective, plan_every_k}) {
      if (construct == plan_mutwo && graph_.ops.size() > kLargestForMutwo) continue;
      starts.push_back(search_.start(construct(graph_, options_).order));
    }
    return starts;
  }

  void report(const OrderSearch::Found& found) const {
    if (!options_.progress) return;
    options_.progress({.strategy = "search",
                       .moves = search_.evaluations(),
                       .best_peak_bytes = found.cost.peak_bytes,
                       .best_time_ns = found.cost.time_ns});
  }

  const Graph& graph_;
  const PlanOptions& options_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  OrderSearch search_;
};

}  // namespace

Plan plan_search(const Graph& graph, const PlanOptions& options) {
  return Searcher(graph, options).plan();
}

}  // namespace remat
