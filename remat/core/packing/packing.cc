// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/packing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "remat/core/packing/evictions.h"
#include "remat/core/packing/glue.h"
#include "remat/core/packing/greedy.h"
#include "remat/core/packing/orders.h"
#include "remat/core/packing/search.h"

namespace remat {
namespace {

using detail::GreedyOrder;
using detail::ItemOrder;

constexpr int64_t kMostCells = 2'000'000;  // the exact search keeps every item at every tick
constexpr int64_t kWorkPerFit = 320;       // of one item, by greedy

// What each stage may take of the work, as parts of it. The stages that find a packing without waste quickly or not
// at all have little; `lower`, which improves the best packing step by step, has what is left.
constexpr int64_t kGluePart = 16;   // for each of two ways to glue
constexpr int64_t kRaisePart = 32;  // for each height
constexpr int64_t kSearchPart = 16;
constexpr int64_t kSearchPartOfLittle = 4;        // up to this much work:
constexpr int64_t kLittleSearchWork = 1'000'000;  // small problems are solved by it
constexpr int64_t kLowerPart = 8;  // for each height: none that is too low takes all

constexpr int kRaises = 4;  // heights beyond the one aimed at
// Of the waste, in one step down; half of that while it fails, until it is less than a thousandth of the
// height, which is not worth the work.
constexpr int64_t kFirstStepPart = 4;
constexpr int64_t kLeastStepPart = 1'000;

class Packer {
 public:
  Packer(const PackingProblem& problem, Effort& effort, const PackingOptions& options)
      : problem_(without_idle_ticks(problem)),
        options_(options),
        effort_(effort),
        all_work_(effort.left()),
        orders_(problem_),
        greedy_(problem_) {
    best_.lower_bound = problem_.largest_load();
    best_.height = std::numeric_limits<int64_t>::max();
  }

  Packing pack() {
    if (problem_.item_count() == 0) return {};
    const PackingStages& on = options_.stages;
    try_greedy_orders();
    partial_.assign(problem_.item_count(), kNotPlaced);
    if (on.both_ends && !tight()) from_both_ends();
    if (on.glue && !tight() && searchable()) search_glued();
    if (on.raise && !tight()) raise();
    if (on.search && !tight() && searchable()) search();
    if (on.lower && !tight()) lower();
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
      const ItemOrder order = orders_.sorted(by);
      if (greedy_.first_fit(order, best_.height - 1, offsets) < order.size()) continue;
      keep_if_lower(offsets);
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

  // Items without an offset take the lowest place that is free, even above the height aimed at.
  void keep_completed(Offsets offsets) {
    effort_.spend(kWorkPerFit * static_cast<int64_t>(offsets.size()));
    greedy_.complete(orders_.sorted(GreedyOrder::load_size), offsets);
    keep_if_lower(std::move(offsets));
  }

  bool searchable() const {
    int64_t cells = 0;
    for (size_t i = 0; i < problem_.item_count(); ++i) {
      for (const Part& part : problem_.parts(i)) cells += part.last - part.first + 1;
    }
    return cells <= kMostCells;
  }

  void search_glued() {
    for (const detail::Glue how : {detail::Glue::twins, detail::Glue::matches}) {
      const detail::GluedProblem glued(problem_, target(), how);
      if (glued.problem().item_count() == problem_.item_count()) continue;
      Effort own = effort_.part(all_work_ / kGluePart);
      const auto fit = detail::fit_with_restarts(glued.problem(), target(), own);
      if (fit.offset) return keep_if_lower(glued.original_offset(*fit.offset));
    }
  }

  // Completes partial_, with more and more height: each time half of what the best packing has beyond it.
  void raise() {
    for (int64_t missed = target() - 1, step = 0;
         step <= kRaises && best_.height - missed > 1 && !effort_.exhausted(); ++step) {
      const int64_t height = step == 0 ? target() : missed + (best_.height - missed) / 2;
      if (evict(height, partial_, kRaisePart)) continue;
      missed = height;
      partial_ = std::move(unfinished_);
    }
  }

  // A proof that there is no packing of the height aimed at says how much is needed: that is tried next.
  void search() {
    const int64_t little = std::min(all_work_ / kSearchPartOfLittle, kLittleSearchWork);
    Effort own = effort_.part(std::max(all_work_ / kSearchPart, little));
    while (!tight() && !own.exhausted()) {
      const int64_t height = target();
      const auto fit = detail::fit_with_restarts(problem_, height, own);
      if (fit.offset) return keep_if_lower(*fit.offset);
      if (fit.lower_bound <= height) return;
      best_.lower_bound = std::min(fit.lower_bound, best_.height);
    }
  }

  // Takes a part of the waste away from the best packing, less where that fails. When the steps get too
  // small it begins again with the first: each try has another seed.
  void lower() {
    int64_t divisor = kFirstStepPart;
    while (!effort_.exhausted() && !tight()) {
      const int64_t step = (best_.height - target()) / divisor;
      const bool lowered =
          evict(best_.height - std::max<int64_t>(1, step), best_.offset, kLowerPart);
      const bool too_small = step <= best_.height / kLeastStepPart;
      divisor = lowered || too_small ? kFirstStepPart : 2 * divisor;
    }
  }

  // Completes what of `start` is below `height`, and keeps the result if it is lower than the best. Items that
  // found no place in time are put above the others first. Returns whether there were none, and leaves the
  // packing without them in unfinished_.
  bool evict(int64_t height, Offsets start, int64_t part) {
    for (size_t i = 0; i < start.size(); ++i) {
      if (start[i] + problem_.size(i) > height) start[i] = kNotPlaced;
    }
    Effort own = effort_.part(all_work_ / part);
    unfinished_ = detail::pack_by_evictions(problem_, height, std::move(start),
                                            orders_.sorted(GreedyOrder::peak_inside), own, ++seed_);
    const bool finished = std::ranges::find(unfinished_, kNotPlaced) == unfinished_.end();
    finished ? keep_if_lower(unfinished_) : keep_completed(unfinished_);
    return finished;
  }

  PackingProblem problem_;
  PackingOptions options_;
  Effort& effort_;
  int64_t all_work_;
  detail::GreedyOrders orders_;
  detail::Greedy greedy_;
  Offsets partial_;     // as complete a packing of the height aimed at as was found
  Offsets unfinished_;  // what the last evictions came to
  uint64_t seed_ = 0;   // of the evictions
  Packing best_;
};

}  // namespace

Packing pack(const PackingProblem& problem, Effort& effort, const PackingOptions& options) {
  return Packer(problem, effort, options).pack();
}

}  // namespace remat
