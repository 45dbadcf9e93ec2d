// SPDX-License-Identifier: Apache-2.0

// Plans that pack and offload, beside recomputing (moves.h). The search is that of order/, on all the
// kinds of insertion there are; this file chooses where it starts:
//
//  1. the plan that only recomputes, which it cannot lose to;
//  2. the given order, made to fit by the insertions that remove most for their time. A transfer takes the
//     channel from others, and what that costs is unknown. So this is done for several prices of the channel;
//  3. where none of these is any good, the given order again with more work;
//  4. where none fits, the plan with the lowest peak that we know;
//  5. the best of these, ruined and repaired, round after round.
//
// Bounds of exact/ hold for plans that only recompute. What holds for these too: every op runs once.

#include <algorithm>
#include <optional>
#include <utility>

#include "remat/core/order/context.h"
#include "remat/core/order/reorder.h"
#include "remat/core/order/repair.h"
#include "remat/core/order/reruns.h"
#include "remat/core/order/ruin.h"
#include "remat/core/strategies/shares.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

// Of a nanosecond on the channel, in nanoseconds of the step. At 0 a transfer that delays no op counts as free.
constexpr double kChannelPrices[] = {0.0, 0.1, 0.4};
constexpr int64_t kFitParts = 2;  // at most this part of the work goes into making all starts fit
// For a second try where no start fits or the best adds over a quarter of a step: about a second, or its share of
// the limit if that is less.
constexpr int64_t kPoorWork = 400'000'000;
constexpr int64_t kPoorPart = 4;  // of a step

// Prunes as far as the effort goes. What no op uses is taken out in any case.
void prune_all(SearchContext& context, FoundOrder& found, Effort& effort) {
  prune(context, found, found.order.size(), effort);
  FoundOrder trial{.order = found.order, .cost = {}, .fits = true};
  erase_dead(context.graph, context.cost, trial.order, effort);
  if (trial.order.size() == found.order.size()) return;
  trial.cost = context.evaluate(trial.order, effort);
  // Removing a move can let another transfer start earlier and delay a later op.
  const bool fits = trial.cost.legal && trial.cost.overflow == 0;
  if (fits && trial.cost.time_ns <= found.cost.time_ns) found = std::move(trial);
}

class MovesSearch {
 public:
  MovesSearch(const Graph& graph, const PlanOptions& options, Effort& effort)
      : graph_(graph), options_(options), effort_(effort) {}

  FoundOrder search(std::vector<OpId> from) {
    const int64_t work = work_share(graph_, options_, kMovesShare);
    Effort effort = effort_.part(work);
    SearchContext first(graph_, settings(0));
    FoundOrder best = first.start(std::move(from), effort);
    const size_t starts = graph_.channel ? std::size(kChannelPrices) : 1;
    double best_price = 0;
    for (size_t i = 0; i < starts; ++i) {
      Effort own = effort.part(work / kFitParts / static_cast<int64_t>(starts));
      const std::vector<OpId> before = best.order;
      for (const std::vector<OpId>& order : {given_order(graph_), before}) {
        try_start(order, kChannelPrices[i], own, best, best_price);
      }
    }
    // Of a large graph close to the floor thousands of values have to move, and many orders are looked at. The
    // plans that only recompute may take a hundred times as long there.
    const auto poor = [&] { return !best.fits || best.cost.time_ns - first.once_ns > first.once_ns / kPoorPart; };
    if (poor()) {
      const int64_t share = work_share(graph_, options_, kPoorShare);
      Effort more = effort_.part(options_.max_orders > 0 ? kPoorWork : std::min(kPoorWork, share));
      for (size_t i = 0; i < starts && poor(); ++i) {
        try_start(given_order(graph_), kChannelPrices[i], more, best, best_price);
      }
    }
    if (!best.fits) go_lowest(first, best);
    if (!best.fits || best.cost.time_ns == first.once_ns) return best;
    SearchContext context(graph_, settings(best_price));
    Ruin(context, effort, options_.stages.flatten).improve(best, effort.left());
    return best;
  }

  // Of the graph, where it was looked for.
  const std::optional<Floor>& floor() const { return floor_; }

 private:
  void try_start(const std::vector<OpId>& order, double price, Effort& effort, FoundOrder& best, double& best_price) {
    SearchContext context(graph_, settings(price));
    FoundOrder start = context.start(order, effort);
    make_fit(context, start, effort);
    if (!better(start, best)) return;
    best = std::move(start);
    best_price = price;
  }

  // Greedy gets stuck close to the floor.
  void go_lowest(SearchContext& context, FoundOrder& best) {
    Plan lowest = plan_for_floor(graph_, options_, effort_);
    floor_ = lowest.floor;
    Effort own = effort_.part(work_share(graph_, options_, kMovesShare));
    FoundOrder start = context.start(std::move(lowest.order), own);
    make_fit(context, start, own);
    if (better(start, best)) best = std::move(start);
  }

  SearchSettings settings(double channel_price) const {
    return {.budget_bytes = options_.budget_bytes,
            .keep_order = options_.keep_order,
            .seed = options_.seed,
            .insert_many = options_.stages.insert_many,
            .channel_price = channel_price};
  }

  static void make_fit(SearchContext& context, FoundOrder& start, Effort& effort) {
    if (!Repair(context, effort).run(start)) return;
    prune_all(context, start, effort);
    context.retime(start, effort);
  }

  const Graph& graph_;
  const PlanOptions& options_;
  Effort& effort_;
  std::optional<Floor> floor_;
};

Plan plan_moves_only(const Graph& graph, const PlanOptions& options, Effort& effort,
                     std::string_view name, bool pack, bool offload) {
  SearchContext context(graph, {.budget_bytes = options.budget_bytes,
                                .keep_order = options.keep_order,
                                .seed = options.seed,
                                .rerun = false,
                                .pack = pack,
                                .offload = offload});
  Effort own = effort.part(work_share(graph, options, kMovesShare));
  FoundOrder found = context.start(given_order(graph), own);
  if (Repair(context, own).run(found)) prune_all(context, found, own);
  context.retime(found, own);
  return make_plan(graph, name, std::move(found.order), options.budget_bytes);
}

}  // namespace

Plan plan_pack_only(const Graph& graph, const PlanOptions& options, Effort& effort) {
  return plan_moves_only(graph, options, effort, "pack_only", true, false);
}

Plan plan_offload_only(const Graph& graph, const PlanOptions& options, Effort& effort) {
  return plan_moves_only(graph, options, effort, "offload_only", false, true);
}

Plan plan_with_moves(const Graph& graph, const PlanOptions& options, Plan without, Effort& effort) {
  const int64_t once_ns = graph.total_time_ns();
  without.floor.reset();  // with moves it is lower
  if (without.feasible && without.time_ns == once_ns) return without;
  MovesSearch search(graph, options, effort);
  FoundOrder found = search.search(without.order);
  Plan plan = make_plan(graph, "search", std::move(found.order), options.budget_bytes);
  plan.floor = search.floor();
  const bool moved = std::any_of(plan.order.begin(), plan.order.end(),
                                 [&](OpId op) { return graph.is_move(op); });
  if (!moved) {
    plan.strategy = without.strategy;
    plan.decisions = std::move(without.decisions);
  }
  if (plan.feasible) plan.lower_bound_time_ns = once_ns;
  plan.bound_without_moves_ns = without.lower_bound_time_ns;
  return plan;
}

}  // namespace remat
