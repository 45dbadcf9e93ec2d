// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/packing.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "remat/core/packing/budget.h"
#include "remat/core/packing/glue.h"
#include "remat/core/packing/greedy.h"
#include "remat/core/packing/orders.h"
#include "remat/core/packing/repair.h"
#include "remat/core/packing/search.h"

namespace remat {
namespace {

using detail::GreedyOrder;
using detail::ItemOrder;

constexpr int64_t kMostCells = 2'000'000;  // the exact search keeps every item at every tick
constexpr int64_t kNodesPerFit = 2;        // of one item, by greedy
constexpr int kRaises = 4;

class Packer {
 public:
  Packer(const PackingProblem& problem, const PackingOptions& options)
      : problem_(without_idle_ticks(problem)),
        options_(options),
        nodes_(options.max_search_nodes),
        budget_(detail::SearchBudget::of(nodes_, options.time_limit_seconds)),
        orders_(problem_),
        greedy_(problem_) {
    best_.lower_bound = problem_.largest_load();
    best_.height = std::numeric_limits<int64_t>::max();
  }

  // Most of the nodes go to a packing without waste, which mostly exists; cheap tries first.
  Packing pack() {
    if (problem_.item_count() == 0) return {};
    const PackingStages& on = options_.stages;
    try_greedy_orders();
    partial_.assign(problem_.item_count(), kNotPlaced);
    if (on.both_ends && !tight()) from_both_ends();
    if (on.reorder && !tight()) reorder(nodes_ / 64);
    if (on.glue && !tight() && searchable()) search_glued(nodes_ / 16);
    if (on.raise && !tight()) raise(nodes_ / 32);
    if (on.search && !tight() && searchable()) search(nodes_ / 4);
    if (on.lower && !tight()) lower(nodes_ / 8);
    best_.search_nodes = nodes_ - std::max<int64_t>(0, budget_.nodes_left);
    return std::move(best_);
  }

 private:
  // What all stages aim at.
  int64_t target() const { return std::max(best_.lower_bound, options_.enough_height); }
  bool tight() const { return best_.height <= target(); }

  void keep_if_lower(Offsets offsets) {
    const int64_t height = height_of(problem_, offsets);
    if (height >= best_.height) return;
    best_.height = height;
    best_.offset = std::move(offsets);
  }

  void try_greedy_orders() {
    Offsets offsets;
    for (const GreedyOrder by : detail::first_fit_orders(problem_.item_count())) {
      ItemOrder order = orders_.sorted(by);
      if (greedy_.first_fit(order, best_.height - 1, offsets) < order.size()) continue;
      keep_if_lower(offsets);
      order_ = std::move(order);
      if (tight()) return;
    }
  }

  // Remembers the packing that leaves out least in partial_.
  void from_both_ends() {
    double least_left_out = std::numeric_limits<double>::infinity();
    Offsets offsets;
    for (const GreedyOrder by : {GreedyOrder::load_length, GreedyOrder::load_size,
                                 GreedyOrder::load_area, GreedyOrder::peak_length}) {
      const double left_out = greedy_.from_both_ends(orders_.sorted(by), target(), offsets);
      if (left_out < least_left_out) partial_ = offsets;
      least_left_out = std::min(least_left_out, left_out);
      if (left_out == 0) break;
    }
    keep_completed(partial_);
  }

  // Whatever has no offset goes wherever it can, however high.
  void keep_completed(Offsets offsets) {
    budget_.pay(kNodesPerFit * static_cast<int64_t>(offsets.size()));
    greedy_.complete(orders_.sorted(GreedyOrder::load_size), offsets);
    keep_if_lower(std::move(offsets));
  }

  // First fit again and again: whatever does not fit comes earlier next time.
  void reorder(int64_t nodes) {
    const detail::BudgetShare share(budget_, nodes);
    Offsets offsets;
    while (!share.spent()) {
      const size_t failed = greedy_.first_fit(order_, target(), offsets);
      budget_.pay(kNodesPerFit * static_cast<int64_t>(failed + 1));
      if (failed == order_.size()) return keep_if_lower(std::move(offsets));
      const auto begin = order_.begin();
      const auto place = begin + static_cast<std::ptrdiff_t>(failed);
      std::rotate(begin + static_cast<std::ptrdiff_t>(random_() % (failed + 1)), place, place + 1);
    }
  }

  bool searchable() const {
    int64_t cells = 0;
    for (size_t i = 0; i < problem_.item_count(); ++i) {
      for (const Part& part : problem_.parts(i)) cells += part.last - part.first + 1;
    }
    return cells <= kMostCells;
  }

  void search_glued(int64_t nodes) {
    for (const detail::Glue how : {detail::Glue::twins, detail::Glue::matches}) {
      const detail::GluedProblem glued(problem_, target(), how);
      if (glued.problem().item_count() == problem_.item_count()) continue;
      const auto fit = detail::fit_with_restarts(glued.problem(), target(), budget_, nodes);
      if (fit.offset) return keep_if_lower(glued.original_offset(*fit.offset));
    }
  }

  // Repairs partial_, with more and more height: each time half of what the best packing has beyond it.
  void raise(int64_t nodes) {
    for (int64_t missed = target() - 1, step = 0; step <= kRaises && best_.height - missed > 1;
         ++step) {
      const int64_t height = step == 0 ? target() : missed + (best_.height - missed) / 2;
      if (repair(height, partial_, nodes)) continue;
      missed = height;
      partial_ = std::move(unfinished_);
    }
  }

  // A proof that there is no packing of the height aimed at says how much is needed: that is tried next.
  void search(int64_t nodes) {
    const detail::BudgetShare share(budget_, nodes);
    while (!tight() && !share.spent()) {
      const int64_t height = target();
      const auto fit = detail::fit_with_restarts(problem_, height, budget_, share.nodes_left());
      if (fit.offset) return keep_if_lower(*fit.offset);
      if (fit.lower_bound <= height) return;
      best_.lower_bound = std::min(fit.lower_bound, best_.height);
    }
  }

  // Takes a quarter of the waste away from the best packing, an eighth where that fails, and so on. When
  // the steps get too small to be worth the work, it begins again with a quarter: each repair has
  // another seed.
  void lower(int64_t nodes) {
    constexpr int64_t kFirst = 4;
    int64_t divisor = kFirst;
    while (!budget_.spent() && !tight()) {
      const int64_t step = (best_.height - target()) / divisor;
      const bool lowered = repair(best_.height - std::max<int64_t>(1, step), best_.offset, nodes);
      const bool too_small = step <= best_.height / 1000;
      divisor = lowered || too_small ? kFirst : 2 * divisor;
    }
  }

  // Repairs what of `start` is below `height`. Keeps the result if it is lower than the best; items
  // that found no place in time go wherever they can for that. Returns whether there were none, and
  // leaves what the repair came to in unfinished_.
  bool repair(int64_t height, Offsets start, int64_t nodes) {
    for (size_t i = 0; i < start.size(); ++i) {
      if (start[i] + problem_.size(i) > height) start[i] = kNotPlaced;
    }
    unfinished_ =
        detail::repair_packing(problem_, height, std::move(start),
                               orders_.sorted(GreedyOrder::peak_inside), budget_, nodes, ++seed_);
    const bool finished = std::ranges::find(unfinished_, kNotPlaced) == unfinished_.end();
    finished ? keep_if_lower(unfinished_) : keep_completed(unfinished_);
    return finished;
  }

  PackingProblem problem_;
  PackingOptions options_;
  int64_t nodes_;
  detail::SearchBudget budget_;
  detail::GreedyOrders orders_;
  detail::Greedy greedy_;
  ItemOrder order_;         // the one that gave the lowest first fit so far
  Offsets partial_;         // as complete a packing of the height aimed at as was found
  Offsets unfinished_;      // what the last repair came to
  std::mt19937_64 random_;  // with its fixed first state: the same packing every time
  uint64_t seed_ = 0;       // of the repairs
  Packing best_;
};

}  // namespace

Packing pack(const PackingProblem& problem, const PackingOptions& options) {
  return Packer(problem, options).pack();
}

}  // namespace remat
