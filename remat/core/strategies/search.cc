// SPDX-License-Identifier: Apache-2.0

// Ours: start from the best construction there is, then search on the exact model (order/search.h).
//
//  1. starts: the given order, and another order of the same ops where that is allowed and lowers the
//     peak; constructions of others (mutwo, selective, every_k, chain_dp); the order behind floor();
//  2. each is made to fit, by another order of its runs as far as that goes, then by peak-aware greedy
//     on exact marginal time, and needless re-runs are taken back;
//  3. a bound on the time of every plan that fits, so that the search can end early;
//  4. rounds, each twice as long as the one before: the fastest is annealed, if the graph is small
//     (ops moved, inserted and erased one by one), and then ruined and repaired, a few re-runs at a
//     time.
//
// Work is counted (effort.h), and a round does not depend on how many follow.

#include <algorithm>
#include <array>
#include <utility>

#include "remat/core/exact/bound.h"
#include "remat/core/order/low_order.h"
#include "remat/core/order/search.h"
#include "remat/core/strategies/shares.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

// Annealing needs some thousand orders per op to be worth it.
constexpr size_t kLargestAnnealed = 500;
// A bound for more ops takes more than its share of the default limit.
constexpr size_t kMostBoundOps = 3'000;
// recompute_all takes up to half a second for more.
constexpr size_t kLargestForAllRuns = 3'000;
constexpr size_t kLargestForBothOrders = 3'000;  // given and reordered: one more start
constexpr int64_t kFirstRound = 500'000;  // of OrderCost's units: about a millisecond
// At most, and at most these parts of the whole, for finding another order and for making all starts
// fit.
constexpr int64_t kReorderWork = 25'000'000;
constexpr int64_t kReorderPart = 8;
constexpr int64_t kFitWork = 100'000'000;
constexpr int64_t kFitPart = 2;

constexpr double kContinueShare = 0.05;  // of the time limit, to go on from a plan

constexpr std::array<double, 2> kHeats = {0.5, 0.2};
constexpr int64_t kReorderTurns = 6;
constexpr int kRepairTurns = 8;
constexpr double kHotter = 3;
// A budget so close to the lowest peak so far is worth more work: parts of it are tried.
constexpr double kWithinReach = 0.9;
constexpr std::array<double, 3> kLowerTargets = {0.99, 0.97, 0.93};

class Searcher {
 public:
  Searcher(const Graph& graph, const PlanOptions& options)
      : graph_(graph),
        options_(options),
        effort_(effort_of(graph, options, kSearchShare)),
        search_(graph, {.budget_bytes = options.budget_bytes,
                        .keep_order = options.keep_order,
                        .seed = options.seed,
                        .limits = {.work = 0, .effort = &effort_}}) {}

  // `may_look_at_all`: every plan, where the graph is small enough.
  Plan plan(bool may_look_at_all) {
    OrderSearch::Found best = search_.start(given_order(graph_));
    if (!best.fits && !(may_look_at_all && look_at_all(best)) && make_fit(best)) {
      // However much it took to fit.
      search_.set_work_limit(std::max(all_work(), search_.work() + all_work() / 2));
      search_.prune(best, best.order.size());
      find_bound(best);
      for (int64_t round = kFirstRound; !search_.exhausted() && improvable(best); round *= 2) {
        const int64_t begin = search_.work();
        if (graph_.ops.size() <= kLargestAnnealed) search_.anneal(best, round / 2);
        search_.improve(best, begin + round, [&](const OrderSearch::Found& found) { report(found); });
      }
    }
    Plan found = make_plan(graph_, "search", best.order, options_.budget_bytes);
    found.floor = floor_;
    found.lower_bound_time_ns = bound_ns_;
    return found;
  }

 private:
  int64_t all_work() const { return work_of(effort_); }
  bool improvable(const OrderSearch::Found& found) const {
    return found.order.size() > graph_.ops.size() &&
           !(bound_ns_ && attains(found.cost.time_ns, *bound_ns_));
  }
  // So that the search ends where there is nothing left to gain.
  void find_bound(const OrderSearch::Found& found) {
    if (!improvable(found) || graph_.ops.size() > kMostBoundOps) return;
    Effort effort = effort_of(graph_, options_, kBoundShare);
    bound_ns_ = lower_bound_time_ns(graph_, options_.budget_bytes, effort,
                                    {.enough_ns = found.cost.time_ns});
  }
  int64_t reorder_work() const { return std::min(kReorderWork, all_work() / kReorderPart); }
  // So much more from here on.
  void allow(int64_t work) { search_.set_work_limit(search_.work() + work); }

  // Of a few dozen ops every plan can be looked at. True if that was possible and one fits.
  bool look_at_all(OrderSearch::Found& best) {
    StateSearchResult all = search_all_states(graph_, options_);
    hopeless_ = all.complete && !all.feasible;
    if (!all.complete || hopeless_) return false;
    best = search_.start(std::move(all.order));
    return true;
  }

  // The fastest order that fits, of all starts. "It does not fit at all" must be said at once, so the
  // lowest peak we know comes first; what is below it is tried for longer the closer it is.
  bool make_fit(OrderSearch::Found& best) {
    Plan for_floor = plan_for_floor(graph_, options_.keep_order);
    floor_ = for_floor.floor;
    OrderSearch::Found lowest = search_.start(std::move(for_floor.order));
    const bool may_fit =
        lowest.fits || (!hopeless_ && lower_bound_peak_bytes(graph_) <= options_.budget_bytes);
    OrderSearch::Found reordered = best;
    if (may_fit && !options_.keep_order) reorder(reordered);
    if (reordered.fits) {  // every op once: nothing is faster
      best = std::move(reordered);
      return true;
    }
    if (may_fit && !lowest.fits) lower_further(reordered, best, lowest);
    if (!lowest.fits) {
      consider(std::move(lowest), best);
      return false;
    }
    allow(std::min(kFitWork, all_work() / kFitPart));
    if (!options_.keep_order && graph_.ops.size() <= kLargestForBothOrders) finish(best, best);
    finish(std::move(reordered), best);
    for (OrderSearch::Found& start : constructions()) finish(std::move(start), best);
    consider(std::move(lowest), best);
    return true;
  }

  // Tries to get below the lowest peak so far, to the budget.
  void lower_further(const OrderSearch::Found& reordered, const OrderSearch::Found& given,
                     OrderSearch::Found& lowest) {
    for (const OrderSearch::Found& from : {lowest, reordered}) lower(from.order, 1.0, lowest);
    if (!lowest.fits && graph_.ops.size() <= kLargestForChainDp) {
      consider(search_.start(plan_chain_dp(graph_, options_).order), lowest);
    }
    // Greedy gets stuck close to the floor.
    if (!lowest.fits && graph_.ops.size() <= kLargestAnnealed) {
      for (const OrderSearch::Found& from : {lowest, reordered, given}) {
        if (lowest.fits) break;
        OrderSearch::Found annealed = from;
        allow(2 * reorder_work());
        search_.anneal(annealed, 2 * reorder_work());
        consider(std::move(annealed), lowest);
      }
    }
    // The way to a lower budget sometimes passes where the way to this one ends.
    for (const double part : kLowerTargets) {
      for (const OrderSearch::Found& from : {lowest, reordered, given}) {
        if (!lowest.fits && within_reach(lowest)) lower(from.order, part, lowest);
      }
    }
    // Never worse than any other strategy, though this one's orders are long.
    if (!lowest.fits && graph_.ops.size() <= kLargestForAllRuns) {
      OrderSearch::Found all_again = search_.start(plan_recompute_all(graph_, options_).order);
      if (all_again.fits) lowest = std::move(all_again);
    }
  }

  // The least overflow that other orders have, from two starts in turn. Mild heat is best where there
  // is far to go, strong heat, from the given order again, for the last few bytes.
  void reorder(OrderSearch::Found& best) {
    const OrderSearch::Found given = best;
    OrderSearch::Found made = search_.start(low_peak_order(graph_));
    OrderSearch::Found near = given;
    const auto keep_lower = [&](const OrderSearch::Found& found) {
      if (found.cost.overflow < best.cost.overflow) best = found;
    };
    allow(reorder_work());
    keep_lower(made);
    for (size_t turn = 0; !best.fits && !search_.exhausted(); ++turn) {
      OrderSearch::Found hot = given;
      OrderSearch::Found& found = turn % 3 == 0 ? made : turn % 3 == 1 ? near : hot;
      const double heat = turn % 3 == 2 ? kHeats[turn / 3 % kHeats.size()] : OrderSearch::kMild;
      search_.reorder(found, reorder_work() / kReorderTurns, heat);
      keep_lower(found);
    }
  }

  bool within_reach(const OrderSearch::Found& lowest) const {
    return static_cast<double>(options_.budget_bytes) >=
           kWithinReach * static_cast<double>(lowest.cost.peak_bytes);
  }

  // From an order to a part of the budget, by re-runs and other orders in turn.
  void lower(const std::vector<OpId>& order, double part, OrderSearch::Found& lowest) {
    allow(reorder_work());
    search_.set_budget(static_cast<int64_t>(part * static_cast<double>(options_.budget_bytes)));
    OrderSearch::Found found = search_.start(order);
    repair(found, reorder_work());
    search_.set_budget(options_.budget_bytes);
    consider(search_.start(std::move(found.order)), lowest);
  }

  // Where re-runs help no more, another order may.
  void repair(OrderSearch::Found& found, int64_t work) {
    const int turns = options_.keep_order ? 0 : kRepairTurns;
    double heat = OrderSearch::kMild;
    for (int turn = 0; !search_.repair(found) && turn < turns && !search_.exhausted(); ++turn) {
      search_.reorder(found, work / (2 * kRepairTurns), heat);
      heat *= kHotter;
    }
  }

  // Makes the start fit, if it can, and keeps it if it is better than the best.
  void finish(OrderSearch::Found start, OrderSearch::Found& best) {
    // Another order is free where re-runs are dear: for the last few bytes, above all.
    if (!start.fits) search_.reorder(start, reorder_work() / kRepairTurns);
    if (!start.fits) repair(start, reorder_work());
    if (start.fits) search_.prune(start, start.order.size());
    consider(std::move(start), best);
  }

  static void consider(OrderSearch::Found found, OrderSearch::Found& best) {
    const bool better = found.fits != best.fits
                            ? found.fits
                            : found.fits ? found.cost.time_ns < best.cost.time_ns
                                         : found.cost.peak_bytes < best.cost.peak_bytes;
    if (better) best = std::move(found);
  }

  // Whatever their limits of work are, these are made as if they were asked for alone: the search is
  // then never worse than any of them.
  std::vector<OrderSearch::Found> constructions() {
    std::vector<OrderSearch::Found> starts;
    for (const auto construct : {plan_mutwo, plan_selective, plan_every_k, plan_chain_dp}) {
      if (construct == plan_mutwo && graph_.ops.size() > kLargestForMutwo) continue;
      if (construct == plan_chain_dp && graph_.ops.size() > kLargestForChainDp) continue;
      std::vector<OpId> order = construct(graph_, options_).order;
      if (options_.keep_order && !keeps_order(graph_, order)) continue;
      starts.push_back(search_.start(std::move(order)));
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
  Effort effort_;
  OrderSearch search_;
  bool hopeless_ = false;  // proven: no plan fits
  std::optional<Floor> floor_;
  std::optional<int64_t> bound_ns_;  // proven
};

}  // namespace

Plan plan_search(const Graph& graph, const PlanOptions& options) {
  return Searcher(graph, options).plan(true);
}

Plan plan_local_search(const Graph& graph, const PlanOptions& options) {
  return Searcher(graph, options).plan(false);
}

Plan continue_search(const Graph& graph, const PlanOptions& options, std::vector<OpId> order) {
  const Effort effort = effort_of(graph, options, kContinueShare);
  OrderSearch search(graph, {.budget_bytes = options.budget_bytes,
                             .keep_order = options.keep_order,
                             .seed = options.seed,
                             .limits = {.work = kFitWork, .effort = &effort}});
  OrderSearch::Found found = search.start(std::move(order));
  if (search.repair(found)) {
    search.set_work_limit(search.work() + work_of(effort));
    search.prune(found, found.order.size());
    search.improve(found, search.work() + work_of(effort), [](const OrderSearch::Found&) {});
  }
  return make_plan(graph, "search", std::move(found.order), options.budget_bytes);
}

}  // namespace remat
