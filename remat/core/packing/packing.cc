// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/packing.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/packing/glue.h"
#include "remat/core/packing/occupancy.h"
#include "remat/core/packing/orders.h"
#include "remat/core/packing/repair.h"
#include "remat/core/packing/search.h"
#include "remat/core/packing/sweep.h"

namespace remat {
namespace {

using detail::FitResult;
using detail::ItemOrder;
using detail::kNotPlaced;
using detail::Occupancy;
using detail::SearchBudget;

// Only ticks at which something starts that was not there at the last such tick, and at which
// something ends, can hold a largest set of items; the others are left out. Overlaps stay overlaps.
PackingProblem without_idle_ticks(const PackingProblem& problem) {
  const size_t ticks = static_cast<size_t>(problem.tick_count());
  std::vector<char> starts(ticks, 0), ends(ticks, 0);
  for (size_t i = 0; i < problem.item_count(); ++i) {
    for (const Part& part : problem.parts(i)) {
      starts[static_cast<size_t>(part.first)] = 1;
      ends[static_cast<size_t>(part.last)] = 1;
    }
  }
  std::vector<int32_t> kept_before(ticks + 1, 0);  // how many ticks before this one are kept
  bool fresh = false;
  for (size_t t = 0; t < ticks; ++t) {
    fresh = fresh || starts[t] != 0;
    const bool keep = fresh && ends[t] != 0;
    kept_before[t + 1] = kept_before[t] + (keep ? 1 : 0);
    if (keep) fresh = false;
  }
  PackingProblem result;
  std::vector<Part> parts;
  for (size_t i = 0; i < problem.item_count(); ++i) {
    parts.clear();
    for (const Part& part : problem.parts(i)) {
      parts.push_back({kept_before[static_cast<size_t>(part.first)],
                       kept_before[static_cast<size_t>(part.last) + 1] - 1, part.size});
    }
    result.add(parts);
  }
  return result;
}

class Packer {
 public:
  Packer(const PackingProblem& problem, const PackingOptions& options)
      : problem_(without_idle_ticks(problem)),
        options_(options),
        orders_(problem_),
        occupancy_(problem_.tick_count()) {
    budget_.nodes_left = options.max_search_nodes;
    // A limit of more than a year, infinity included, would overflow the clock.
    const std::chrono::duration<double> limit(std::clamp(options.time_limit_seconds, 0.0, 3e7));
    budget_.deadline = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
    for (const int64_t load : problem_.load()) {
      best_.lower_bound = std::max(best_.lower_bound, load);
    }
    best_.height = std::numeric_limits<int64_t>::max();
  }

  Packing pack() {
    if (problem_.item_count() == 0) return {};
    greedy();
    // Most of what may be spent goes to a packing without waste, which mostly exists; cheap tries
    // first.
    if (!tight()) from_both_ends(target());
    if (!tight()) reorder(target(), options_.max_search_nodes / 64);
    for (const detail::Glue how : {detail::Glue::twins, detail::Glue::matches}) {
      if (tight() || !searchable()) break;
      search_glued(target(), how, options_.max_search_nodes / 16);
    }
    if (!tight()) sweep(target(), options_.max_search_nodes / 6);
    if (!tight()) repair_glued(options_.max_search_nodes / 4);
    if (!tight() && searchable()) search(target(), options_.max_search_nodes / 8);
    if (!tight()) close_in();
    best_.search_nodes = options_.max_search_nodes - std::max<int64_t>(0, budget_.nodes_left);
    return std::move(best_);
  }

 private:
  // What all stages aim at.
  int64_t target() const { return std::max(best_.lower_bound, options_.enough_height); }
  bool tight() const { return best_.height <= target(); }

  // Puts the items one after the other, each at the lowest offset that is free. Returns the index
  // of the first that does not fit below the limit, or the number of items.
  size_t first_fit(const ItemOrder& order, int64_t limit) {
    occupancy_.clear();
    offset_.assign(order.size(), 0);
    for (size_t at = 0; at < order.size(); ++at) {
      const size_t item = static_cast<size_t>(order[at]);
      const auto parts = problem_.parts(item);
      int64_t size = 0;
      for (const Part& part : parts) size = std::max(size, part.size);
      const int64_t offset = occupancy_.lowest_fit(parts, limit - size);
      if (offset > limit - size) return at;
      occupancy_.insert(parts, offset);
      offset_[item] = offset;
    }
    return order.size();
  }

  void keep(std::vector<int64_t> offset) {
    best_.height = 0;
    for (size_t i = 0; i < offset.size(); ++i) {
      for (const Part& part : problem_.parts(i)) {
        best_.height = std::max(best_.height, offset[i] + part.size);
      }
    }
    best_.offset = std::move(offset);
  }

  void keep_if_lower(const std::vector<int64_t>& offset) {
    Packing before = best_;
    keep(offset);
    if (best_.height >= before.height) best_ = std::move(before);
  }

  void greedy() {
    const bool large = problem_.item_count() > kLarge;
    for (int k = 0; k < (large ? detail::kHoleFreeGreedyOrders : detail::kGreedyOrders); ++k) {
      ItemOrder order = orders_.sorted(static_cast<detail::GreedyOrder>(k));
      if (first_fit(order, best_.height - 1) < order.size()) continue;
      keep(offset_);
      order_ = std::move(order);
      if (tight()) return;
    }
  }

  // What stays to the end hangs from `target`, the rest stands on the bottom: activations shrink
  // and gradients grow with one hole between them. Leaves out what does not fit, and remembers
  // the packing that leaves out least in partial_.
  bool from_both_ends(int64_t target) {
    double least_left_out = std::numeric_limits<double>::infinity();
    for (const detail::GreedyOrder by :
         {detail::GreedyOrder::load_length, detail::GreedyOrder::load_size,
          detail::GreedyOrder::load_area, detail::GreedyOrder::peak_length}) {
      const double left_out = fit_from_both_ends(orders_.sorted(by), target);
      if (left_out < least_left_out) partial_ = offset_;
      least_left_out = std::min(least_left_out, left_out);
      if (left_out > 0) continue;
      keep(offset_);
      return true;
    }
    finish_partial();
    return false;
  }

  // Returns size times length of what does not fit, summed up.
  double fit_from_both_ends(const ItemOrder& order, int64_t target) {
    occupancy_.clear();
    offset_.assign(order.size(), kNotPlaced);
    double left_out = 0;
    for (const int32_t item : order) {
      const size_t i = static_cast<size_t>(item);
      const auto parts = problem_.parts(i);
      int64_t size = 0;
      double area = 0;
      for (const Part& part : parts) {
        size = std::max(size, part.size);
        area += static_cast<double>(part.size) * (part.last - part.first + 1);
      }
      const bool hangs = parts.back().last + 1 == problem_.tick_count();
      const int64_t offset = hangs ? occupancy_.highest_fit(parts, target - size)
                                   : occupancy_.lowest_fit(parts, target - size);
      if (offset < 0 || offset > target - size) {
        left_out += area;
        continue;
      }
      occupancy_.insert(parts, offset);
      offset_[i] = offset;
    }
    return left_out;
  }

  // Packs a few ticks around the peak exactly, wider and wider as long as that is easy, and leaves
  // the result in partial_. What is there all through such a window can lie below or above all
  // else without loss. Two items of the window that meet outside it meet in it too, so that all of
  // them may keep their offsets when the rest comes.
  void from_window(int64_t target, int64_t nodes) {
    partial_.assign(problem_.item_count(), kNotPlaced);
    const std::vector<int64_t> load = problem_.load();
    const int32_t peak = static_cast<int32_t>(std::ranges::max_element(load) - load.begin());
    for (int32_t radius = 4; radius < 2 * problem_.tick_count(); radius = radius * 3 / 2) {
      const int32_t first = std::max(0, peak - radius);
      const int32_t last = std::min(problem_.tick_count() - 1, peak + radius);
      if (!fit_window(first, last, target, nodes / 2)) return;
      finish_partial();
      if (best_.height <= target) return;
    }
  }

  bool fit_window(int32_t first, int32_t last, int64_t target, int64_t nodes) {
    ItemOrder through, within;
    PackingProblem window;
    int64_t through_size = 0;
    for (const int32_t item : orders_.sorted(detail::GreedyOrder::peak_inside)) {
      const auto parts = problem_.parts(static_cast<size_t>(item));
      const Part& part = parts.front();
      if (parts.size() > 1 || part.last < first || part.first > last) continue;
      if (part.first <= first && part.last >= last) {
        through.push_back(item);
        through_size += part.size;
      } else {
        within.push_back(item);
        window.add({std::max(part.first, first) - first, std::min(part.last, last) - first, part.size});
      }
    }
    Packer packer(window, options_);
    packer.budget_ = budget_;
    const bool found = packer.pack_window(target - through_size, nodes);
    budget_ = packer.budget_;
    if (!found) return false;
    int64_t bottom = 0, top = target;
    for (const int32_t item : through) {
      const Part& part = problem_.parts(static_cast<size_t>(item)).front();
      const bool hangs = part.last + 1 == problem_.tick_count();
      if (hangs) top -= part.size;
      partial_[static_cast<size_t>(item)] = hangs ? top : bottom;
      if (!hangs) bottom += part.size;
    }
    for (size_t w = 0; w < within.size(); ++w) {
      partial_[static_cast<size_t>(within[w])] = bottom + packer.best_.offset[w];
    }
    return true;
  }

  bool pack_window(int64_t target, int64_t nodes) {
    if (problem_.item_count() == 0) return true;
    greedy();
    if (best_.height > target) from_both_ends(target);
    if (best_.height > target) repair(target, nodes / 4);
    if (best_.height > target) reorder(target, nodes / 16);
    if (best_.height > target && searchable()) search_glued(target, detail::Glue::twins, nodes / 4);
    if (best_.height > target && searchable()) search(target, nodes / 2);
    return best_.height <= target;
  }

  // Goes on from partial_, and leaves there how far it came.
  bool repair(int64_t target, int64_t nodes) {
    const ItemOrder order = orders_.sorted(detail::GreedyOrder::peak_inside);
    partial_ = detail::repair_packing(problem_, target, std::move(partial_), order, budget_, nodes);
    if (std::ranges::find(partial_, kNotPlaced) != partial_.end()) {
      finish_partial();
      return false;
    }
    keep_if_lower(partial_);
    return true;
  }

  // What a sweep leaves out may still find a place: some work for each that leaves out less.
  bool sweep(int64_t target, int64_t nodes) {
    if (problem_.item_count() > kMostItems) return false;  // one sweep would cost all there is
    const int64_t stop_at = std::max<int64_t>(0, budget_.nodes_left - nodes);
    detail::Sweep sweep(problem_, target);
    double least_left_out = std::numeric_limits<double>::infinity();
    while (budget_.nodes_left > stop_at) {
      std::vector<int64_t> offset = sweep.next(budget_);
      const double left_out = sweep.area_left_out(offset);
      if (left_out >= least_left_out) continue;
      least_left_out = left_out;
      partial_ = std::move(offset);
      if (repair(target, nodes / 16)) return true;
    }
    return false;
  }

  // What found no place in partial_ goes wherever it can, however high.
  void finish_partial() {
    budget_.pay(kNodesPerFit * static_cast<int64_t>(partial_.size()));
    occupancy_.clear();
    offset_ = partial_;
    for (size_t i = 0; i < offset_.size(); ++i) {
      if (offset_[i] != kNotPlaced) occupancy_.insert(problem_.parts(i), offset_[i]);
    }
    for (const int32_t item : orders_.sorted(detail::GreedyOrder::load_size)) {
      const size_t i = static_cast<size_t>(item);
      if (offset_[i] != kNotPlaced) continue;
      offset_[i] = occupancy_.lowest_fit(problem_.parts(i), std::numeric_limits<int64_t>::max() / 2);
      occupancy_.insert(problem_.parts(i), offset_[i]);
    }
    keep_if_lower(offset_);
  }

  // Fewer and larger items make the moves of a repair cheaper, and leave fewer splinters.
  void repair_glued(int64_t nodes) {
    // Finding a host for every grain is quadratic.
    if (problem_.item_count() > kMostItems) {
      repair_from_all_starts(target(), nodes);
      return;
    }
    const detail::GluedProblem glued(problem_, target(), detail::Glue::dust);
    Packer packer(glued.problem(), options_);
    packer.budget_ = budget_;
    packer.greedy();
    if (packer.best_.height > target()) packer.repair_from_all_starts(target(), nodes);
    budget_ = packer.budget_;
    if (packer.best_.height < best_.height) keep(glued.original_offset(packer.best_.offset));
  }

  void repair_from_all_starts(int64_t target, int64_t nodes) {
    if (from_both_ends(target) || repair(target, nodes / 8)) return;
    const std::vector<int64_t> from_ends = partial_;
    const int64_t height_from_ends = best_.height;
    from_window(target, nodes / 2);
    if (best_.height <= target || repair(target, nodes / 4)) return;
    if (best_.height == height_from_ends) partial_ = from_ends;
    // Closes in from above: a little more height at the top of what is nearly complete.
    int64_t missed = target;
    for (int i = 0; i < 4 && best_.height - missed > 1; ++i) {
      const int64_t higher = missed + (best_.height - missed) / 2;
      const std::vector<int64_t> start = partial_;
      if (repair(higher, nodes / 16)) {
        partial_ = start;
      } else {
        missed = higher;
      }
    }
  }

  // Aims at `target`: whatever does not fit below it comes earlier next time.
  bool reorder(int64_t target, int64_t nodes) {
    ItemOrder order = order_;
    const int64_t stop_at = std::max<int64_t>(0, budget_.nodes_left - nodes);
    while (budget_.nodes_left > stop_at) {
      const size_t failed = first_fit(order, target);
      budget_.pay(kNodesPerFit * static_cast<int64_t>(failed + 1));
      if (failed == order.size()) {
        keep(offset_);
        order_ = std::move(order);
        return true;
      }
      const size_t to = static_cast<size_t>(random_() % (failed + 1));
      const auto begin = order.begin();
      std::rotate(begin + static_cast<std::ptrdiff_t>(to),
                  begin + static_cast<std::ptrdiff_t>(failed),
                  begin + static_cast<std::ptrdiff_t>(failed) + 1);
    }
    return false;
  }

  // The exact search keeps every item at every tick.
  bool searchable() const {
    int64_t cells = 0;
    for (size_t i = 0; i < problem_.item_count(); ++i) {
      for (const Part& part : problem_.parts(i)) cells += part.last - part.first + 1;
    }
    return cells <= kMaxSearchCells;
  }

  void search_glued(int64_t target, detail::Glue how, int64_t nodes) {
    const detail::GluedProblem glued(problem_, target, how);
    if (glued.problem().item_count() == problem_.item_count()) return;
    const FitResult fit = fit_with_restarts(glued.problem(), target, nodes);
    if (fit.offset) keep(glued.original_offset(*fit.offset));
  }

  bool search(int64_t target, int64_t nodes) {
    const FitResult fit = fit_with_restarts(problem_, target, nodes);
    if (fit.offset) keep(*fit.offset);
    if (fit.lower_bound > target) best_.lower_bound = std::min(fit.lower_bound, best_.height);
    return fit.offset.has_value();
  }

  // Searches again and again, each time longer and with another preference: a wrong choice at the
  // bottom can cost all the time there is.
  FitResult fit_with_restarts(const PackingProblem& problem, int64_t target, int64_t nodes) {
    const int64_t stop_at = std::max<int64_t>(0, budget_.nodes_left - nodes);
    int64_t share = 2000;
    for (uint64_t seed = 0; budget_.nodes_left > stop_at; ++seed, share = share * 3 / 2) {
      SearchBudget once = budget_;
      once.nodes_left = std::min(budget_.nodes_left - stop_at, share);
      const int64_t before = once.nodes_left;
      FitResult fit = detail::fit_exactly(problem, target, once, seed);
      budget_.pay(before - std::max<int64_t>(0, once.nodes_left));
      // Nodes left over: the search has seen everything it can see, with any preference.
      if (fit.offset || !once.spent()) return fit;
    }
    return {};
  }

  // Halves the distance between what is found and what is out of reach, or seems to be.
  void close_in() {
    int64_t missed = target() - 1;
    const int64_t share = std::max<int64_t>(1, options_.max_search_nodes / 64);
    while (!budget_.spent() && !tight() && best_.height - missed > 1) {
      const int64_t middle = missed + (best_.height - missed) / 2;
      if (sweep(middle, 4 * share) || reorder(middle, share)) continue;
      if (searchable() && search(middle, share)) continue;
      missed = std::max(middle, target() - 1);
    }
  }

  static constexpr size_t kLarge = 20'000;
  static constexpr size_t kMostItems = 4'000;  // for what is quadratic
  static constexpr int64_t kNodesPerFit = 2;
  static constexpr int64_t kMaxSearchCells = 2'000'000;

  PackingProblem problem_;
  PackingOptions options_;
  detail::GreedyOrders orders_;
  SearchBudget budget_;
  Occupancy occupancy_;
  std::vector<int64_t> offset_;   // of the last first_fit
  std::vector<int64_t> partial_;  // of the last from_both_ends, where it failed
  std::mt19937_64 random_;        // with its fixed first state: the same packing every time
  ItemOrder order_;               // the order that gave the best height so far
  Packing best_;
};

}  // namespace

size_t PackingProblem::add(std::span<const Part> parts) {
  REMAT_ASSERT(!parts.empty());
  for (size_t p = 0; p < parts.size(); ++p) {
    REMAT_ASSERT(parts[p].size > 0 && parts[p].first <= parts[p].last);
    REMAT_ASSERT(parts[p].first >= (p == 0 ? 0 : parts[p - 1].last + 1));
  }
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  ends_.push_back(parts_.size());
  tick_count_ = std::max(tick_count_, parts.back().last + 1);
  return ends_.size() - 1;
}

std::vector<int64_t> PackingProblem::load() const {
  std::vector<int64_t> load(static_cast<size_t>(tick_count_) + 1, 0);
  for (const Part& part : parts_) {
    load[static_cast<size_t>(part.first)] += part.size;
    load[static_cast<size_t>(part.last) + 1] -= part.size;
  }
  std::partial_sum(load.begin(), load.end(), load.begin());
  load.pop_back();
  return load;
}

Packing pack(const PackingProblem& problem, const PackingOptions& options) {
  return Packer(problem, options).pack();
}

}  // namespace remat
