// SPDX-License-Identifier: Apache-2.0

// Ours: start from the best construction there is, then search on the exact model (order/context.h).
//
//  1. starts: the given order, and another order of the same ops where that is allowed and lowers the
//     peak; constructions of others (mutwo, selective, every_k, chain_dp); the order behind floor();
//  2. each is made to fit, by another order of its runs as far as that goes, then by peak-aware greedy
//     on exact marginal time, and needless re-runs are taken back;
//  3. a bound on the time of every plan that fits, so that the search can end early;
//  4. rounds, each twice as long as the one before: the fastest is ruined and repaired, a few re-runs at
//     a time; close to the floor the lowest is, too.
//
// Work is counted (effort.h), and a round does not depend on how many follow.

#include <algorithm>
#include <array>
#include <utility>

#include "remat/core/exact/bound.h"
#include "remat/core/order/context.h"
#include "remat/core/order/low_order.h"
#include "remat/core/order/reorder.h"
#include "remat/core/order/repair.h"
#include "remat/core/order/reruns.h"
#include "remat/core/order/ruin.h"
#include "remat/core/strategies/all_states.h"
#include "remat/core/strategies/early_updates.h"
#include "remat/core/strategies/shares.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

// mutwo's choice is quadratic in the number of candidates, chain_dp's blocks and tables are linear but not
// cheap.
constexpr size_t kLargestForMutwo = 10'000;
constexpr size_t kLargestForChainDp = 10'000;
// Close to the floor, where the budget is less than so many times the lowest peak, ruin and repair often
// end in a bad local minimum: an order that barely fits leaves no room for changes. Small graphs, whose
// orders are quickly looked at, then get a second start, the lowest order. The fastest one has a quarter
// of the work, the lowest one half, and the better of the two results the rest.
constexpr double kCloseToFloor = 1.2;
constexpr size_t kLargestForTwoStarts = 500;
constexpr int64_t kFirstStartPart = 4;
constexpr int64_t kSecondStartPart = 2;
// A bound for more ops takes more than its share of the default limit.
constexpr size_t kMostBoundOps = 3'000;
// recompute_all takes up to half a second for more.
constexpr size_t kLargestForAllRuns = 3'000;
constexpr size_t kLargestForBothOrders = 3'000;  // given and reordered: one more start
constexpr int64_t kFirstRound = 500'000;         // of work: about a millisecond
// At most, and at most these parts of the whole, for finding another order and for making all starts
// fit.
constexpr int64_t kReorderWork = 25'000'000;
constexpr int64_t kReorderPart = 8;
constexpr int64_t kFitWork = 100'000'000;
constexpr int64_t kFitPart = 2;
// At least this part of the work is left for improving, however much fitting took.
constexpr int64_t kImprovePart = 2;

// Every third reordering begins from the given order again, with one of these heats. They are high: an
// order that saves the last few bytes may be far from the given one.
constexpr std::array<double, 2> kHeats = {0.5, 0.2};
constexpr int64_t kReorderTurns = 6;
// Re-runs and other orders in turn, each order hotter than the one before.
constexpr int kRepairTurns = 8;
constexpr double kHotter = 3;
// A budget so close to the lowest peak so far is worth more work: parts of it are tried.
constexpr double kWithinReach = 0.9;
constexpr std::array<double, 3> kLowerTargets = {0.99, 0.97, 0.93};

class Searcher {
 public:
  Searcher(const Graph& graph, const PlanOptions& options, Effort& whole)
      : graph_(graph),
        options_(options),
        whole_(whole),
        all_work_(work_share(graph, options, kSearchShare)),
        effort_(whole.part()),
        context_(graph, {.budget_bytes = options.budget_bytes,
                         .keep_order = options.keep_order,
                         .seed = options.seed,
                         .insert_many = options.stages.insert_many}) {}

  // `may_look_at_all`: every plan, where the graph is small enough.
  Plan plan(bool may_look_at_all) {
    FoundOrder best = context_.start(given_order(graph_), effort_);
    if (!best.fits && !(may_look_at_all && look_at_all(best)) && make_fit(best)) improve(best);
    Plan found = make_plan(graph_, "search", best.order, options_.budget_bytes);
    found.floor = floor_;
    found.lower_bound_time_ns = bound_ns_;
    return found;
  }

 private:
  const SearchStages& stages() const { return options_.stages; }
  bool improvable(const FoundOrder& found) const {
    return found.order.size() > graph_.ops.size() &&
           !(bound_ns_ && attains(found.cost.time_ns, *bound_ns_));
  }
  bool chain_dp() const {
    return stages().chain_dp && graph_.ops.size() <= kLargestForChainDp;
  }
  std::optional<std::vector<OpId>> early_updates(std::span<const OpId> order) const {
    return stages().early_updates ? with_early_updates(graph_, order) : std::nullopt;
  }
  int64_t reorder_work() const { return std::min(kReorderWork, all_work_ / kReorderPart); }

  // From an order that fits.
  void improve(FoundOrder& best) {
    const int64_t left = all_work_ - effort_.spent();
    Effort effort = effort_.part(std::max(left, all_work_ / kImprovePart));
    prune(context_, best, best.order.size(), effort);
    find_bound(best);
    if (stages().second_start && close_to_floor()) start_twice(best, effort);
    ruin(best, effort);
  }

  void start_twice(FoundOrder& best, Effort& effort) {
    FoundOrder second = *lowest_;
    const int64_t work = effort.left();
    Effort for_first = effort.part(work / kFirstStartPart);
    ruin(best, for_first);
    if (!improvable(best)) return;
    Effort for_second = effort.part(work / kSecondStartPart);
    prune(context_, second, second.order.size(), for_second);
    ruin(second, for_second);
    consider(std::move(second), best);
  }

  void ruin(FoundOrder& best, Effort& effort) {
    if (!stages().ruin) return;
    for (int64_t round = kFirstRound; !effort.exhausted() && improvable(best); round *= 2) {
      Ruin(context_, effort, stages().flatten)
          .improve(best, round, [&](const FoundOrder& found) { report(found); });
    }
  }

  // So that the search ends where there is nothing left to gain.
  void find_bound(const FoundOrder& found) {
    if (!stages().bound || !improvable(found) || graph_.ops.size() > kMostBoundOps) return;
    Effort effort = whole_.part(work_share(graph_, options_, kBoundShare));
    bound_ns_ = lower_bound_time_ns(graph_, options_.budget_bytes, effort,
                                    {.enough_ns = found.cost.time_ns, .coarse = stages().coarse_bound});
  }

  // Of a few dozen ops every plan can be looked at. True if that was possible and one fits.
  bool look_at_all(FoundOrder& best) {
    StateSearchResult all = search_all_states(graph_, options_, whole_);
    hopeless_ = all.complete && !all.feasible;
    if (!all.complete || hopeless_) return false;
    best = context_.start(std::move(all.order), effort_);
    return true;
  }

  // The fastest order that fits, of all starts. The lowest peak we know comes first: where that is far
  // above the budget, the answer is "it does not fit", and the user should not wait for it.
  bool make_fit(FoundOrder& best) {
    Plan for_floor = plan_for_floor(graph_, options_, whole_);
    floor_ = for_floor.floor;
    FoundOrder lowest = context_.start(std::move(for_floor.order), effort_);
    const bool may_fit =
        lowest.fits || (!hopeless_ && lower_bound_peak_bytes(graph_) <= options_.budget_bytes);
    FoundOrder reordered = best;
    if (may_fit && !options_.keep_order) lower_by_order(reordered);
    if (reordered.fits) {  // every op once: nothing is faster
      best = std::move(reordered);
      return true;
    }
    if (may_fit && !lowest.fits) lower_further(reordered, best, lowest);
    if (!lowest.fits) {
      consider(std::move(lowest), best);
      return false;
    }
    Effort effort = effort_.part(std::min(kFitWork, all_work_ / kFitPart));
    if (!options_.keep_order && graph_.ops.size() <= kLargestForBothOrders)
      finish(best, best, effort);
    finish(std::move(reordered), best, effort);
    for (FoundOrder& start : constructions(effort)) finish(std::move(start), best, effort);
    lowest_ = lowest;
    consider(std::move(lowest), best);
    return true;
  }

  // Tries to get below the lowest peak so far, to the budget.
  void lower_further(const FoundOrder& reordered, const FoundOrder& given, FoundOrder& lowest) {
    for (const FoundOrder& from : {lowest, reordered}) lower(from.order, 1.0, lowest);
    if (!lowest.fits && chain_dp()) {
      consider(context_.start(plan_chain_dp(graph_, options_, whole_).order, effort_), lowest);
    }
    // Aiming below the budget can get out of a dead end.
    for (const double part : kLowerTargets) {
      for (const FoundOrder& from : {lowest, reordered, given}) {
        if (!lowest.fits && stages().lower_targets && within_reach(lowest)) {
          lower(from.order, part, lowest);
        }
      }
    }
    // Never worse than any other strategy, though this one's orders are long.
    if (!lowest.fits && graph_.ops.size() <= kLargestForAllRuns) {
      FoundOrder all_again = context_.start(plan_recompute_all(graph_, options_).order, effort_);
      if (all_again.fits) lowest = std::move(all_again);
    }
  }

  // The least overflow that other orders of the ops have, from three starts in turn: one made for a low
  // peak and the given one, each from where it has come to, and the given one anew.
  void lower_by_order(FoundOrder& best) {
    const FoundOrder given = best;
    FoundOrder made = context_.start(low_peak_order(graph_), effort_);
    FoundOrder near = given;
    if (auto early = early_updates(given.order)) near = context_.start(std::move(*early), effort_);
    const auto keep_lower = [&](const FoundOrder& found) {
      if (found.cost.overflow < best.cost.overflow) best = found;
    };
    Effort effort = effort_.part(reorder_work());
    keep_lower(near);
    keep_lower(made);
    for (size_t turn = 0; stages().reorder && !best.fits && !effort.exhausted(); ++turn) {
      FoundOrder anew = given;
      FoundOrder& found = turn % 3 == 0 ? made : turn % 3 == 1 ? near : anew;
      const double heat = turn % 3 == 2 ? kHeats[turn / 3 % kHeats.size()] : kMildHeat;
      reorder(context_, found, reorder_work() / kReorderTurns, effort, heat);
      keep_lower(found);
    }
  }

  bool within_reach(const FoundOrder& lowest) const {
    return static_cast<double>(options_.budget_bytes) >=
           kWithinReach * static_cast<double>(lowest.cost.peak_bytes);
  }

  bool close_to_floor() const {
    return lowest_ && graph_.ops.size() <= kLargestForTwoStarts &&
           static_cast<double>(options_.budget_bytes) <
               kCloseToFloor * static_cast<double>(lowest_->cost.peak_bytes);
  }

  // From an order to a part of the budget, by re-runs and other orders in turn.
  void lower(const std::vector<OpId>& order, double part, FoundOrder& lowest) {
    Effort effort = effort_.part(reorder_work());
    std::vector<OpId> lowered;
    {
      const OtherBudget aim(context_, static_cast<int64_t>(part * static_cast<double>(options_.budget_bytes)));
      FoundOrder found = context_.start(order, effort);
      repair(found, effort);
      lowered = std::move(found.order);
    }
    consider(context_.start(std::move(lowered), effort), lowest);
  }

  // Where re-runs help no more, another order may.
  void repair(FoundOrder& found, Effort& effort) {
    const int turns = options_.keep_order || !stages().reorder ? 0 : kRepairTurns;
    double heat = kMildHeat;
    Repair by_reruns(context_, effort);
    for (int turn = 0; !by_reruns.run(found) && turn < turns && !effort.exhausted(); ++turn) {
      reorder(context_, found, reorder_work() / (2 * kRepairTurns), effort, heat);
      heat *= kHotter;
    }
  }

  // Makes the start fit, if it can, and keeps it if it is better than the best.
  void finish(FoundOrder start, FoundOrder& best, Effort& effort) {
    // Another order takes no time and a re-run does, so orders come first: often enough where only a few
    // bytes are too many.
    if (!start.fits && stages().reorder) {
      reorder(context_, start, reorder_work() / kRepairTurns, effort);
    }
    if (!start.fits) repair(start, effort);
    if (start.fits) prune(context_, start, start.order.size(), effort);
    consider(std::move(start), best);
  }

  static void consider(FoundOrder found, FoundOrder& best) {
    if (better(found, best)) best = std::move(found);
  }

  // Each is made with the limits of work that it has when it is asked for alone, so that the search is never
  // worse than any of them.
  std::vector<FoundOrder> constructions(Effort& effort) {
    std::vector<FoundOrder> starts;
    if (!stages().constructions) return starts;
    const std::optional<EarlyGraph> early =
        options_.keep_order || !stages().early_updates ? std::nullopt : EarlyGraph::of(graph_);
    const auto construct = [&](auto strategy) {
      std::vector<OpId> order = strategy(graph_).order;
      if (options_.keep_order && !keeps_order(graph_, order)) return;
      starts.push_back(context_.start(std::move(order), effort));
      if (!early || whole_.out_of_cpu()) return;
      starts.push_back(context_.start(early->original(strategy(early->graph()).order), effort));
    };
    if (graph_.ops.size() <= kLargestForMutwo) {
      construct([&](const Graph& graph) { return plan_mutwo(graph, options_, whole_); });
    }
    construct([&](const Graph& graph) { return plan_selective(graph, options_); });
    construct([&](const Graph& graph) { return plan_every_k(graph, options_); });
    if (chain_dp()) {
      construct([&](const Graph& graph) { return plan_chain_dp(graph, options_, whole_); });
    }
    return starts;
  }

  void report(const FoundOrder& found) const {
    if (!options_.progress) return;
    options_.progress({.strategy = "search",
                       .orders = context_.evaluations,
                       .best_peak_bytes = found.cost.peak_bytes,
                       .best_time_ns = found.cost.time_ns});
  }

  const Graph& graph_;
  const PlanOptions& options_;
  Effort& whole_;     // of the plan
  int64_t all_work_;  // the share of `search`
  Effort effort_;     // what it has spent of that, or beyond it
  SearchContext context_;
  bool hopeless_ = false;  // proven: no plan fits
  std::optional<FoundOrder> lowest_;  // that is known to fit
  std::optional<Floor> floor_;
  std::optional<int64_t> bound_ns_;  // proven
};

}  // namespace

Plan plan_search(const Graph& graph, const PlanOptions& options, Effort& effort) {
  return Searcher(graph, options, effort).plan(true);
}

Plan plan_local_search(const Graph& graph, const PlanOptions& options, Effort& effort) {
  return Searcher(graph, options, effort).plan(false);
}

Plan continue_search(const Graph& graph, const PlanOptions& options, std::vector<OpId> order,
                     Effort& whole) {
  const int64_t work = work_share(graph, options, kContinueShare);
  SearchContext context(graph, {.budget_bytes = options.budget_bytes,
                                .keep_order = options.keep_order,
                                .seed = options.seed});
  Effort fitting = whole.part(kFitWork);
  FoundOrder found = context.start(std::move(order), fitting);
  if (Repair(context, fitting).run(found)) {
    Effort effort = whole.part(work);
    prune(context, found, found.order.size(), effort);
    Ruin(context, effort).improve(found, work);
  }
  return make_plan(graph, "search", std::move(found.order), options.budget_bytes);
}

}  // namespace remat
