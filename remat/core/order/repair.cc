// SPDX-License-Identifier: Apache-2.0

// The inserting half of OrderSearch: from an order that needs too much to one that fits.
//
// At the position where most is resident, every value that lies idle there could be forgotten and
// made again before its next use. What that removes of the overflow is estimated for all of them
// and computed for the most promising; the best ratio to the time it costs wins.

#include <algorithm>
#include <utility>

#include "remat/core/order/search.h"

namespace remat {
namespace {

constexpr size_t kEvaluatedPerStep = 12;
constexpr size_t kEvaluatedTogether = 1'000;
constexpr size_t kStretch = 64;  // positions
constexpr size_t kPlaces = 4;
constexpr size_t kOneByOne = 1'500;  // ops; above, insertions are made many at a time
constexpr size_t kLargestBlock = 200;
constexpr int64_t kWorkPerOpOfBlock = 30;  // look-ups in the timeline are not cheap
constexpr int kOtherPositions = 3;

double ratio(double gain, int64_t time_ns) { return gain / (static_cast<double>(time_ns) + 1e-3); }

}  // namespace

bool OrderSearch::repair(Found& found) {
  const bool many = graph_.ops.size() > kOneByOne;
  while (!found.fits && !exhausted() && ((many && repair_many(found)) || repair_step(found))) {
  }
  return found.fits;
}

void OrderSearch::look_at(Found& found) {
  // Of the found order, not of the trial evaluated last.
  found.cost = evaluate(found.order);
  resident_.assign(cost_.resident_bytes().begin(), cost_.resident_bytes().end());
  sum_excess();
  timeline_.build(cost_, found.order);
  cost_.add_work(static_cast<int64_t>(found.order.size()) * 6);
}

// In a large graph one insertion at a time would take for ever, and its layers offer the same bargain
// many times over: takes the best ratios together, up to half of what is too much at the peak, and
// fewer if that does not help.
bool OrderSearch::repair_many(Found& found) {
  look_at(found);
  const size_t peak = found.cost.peak_position;
  const std::vector<Insertion> insertions = insertions_at(peak, kEvaluatedTogether);
  const double excess = static_cast<double>(resident_[peak] - settings_.budget_bytes);
  for (double share = 0.5; share > 0.01; share /= 2) {
    std::vector<Insertion> chosen;
    std::vector<bool> taken(cost_.value_count(), false);
    double bytes = 0;
    for (const Insertion& insertion : insertions) {
      if (bytes >= share * excess) break;
      const size_t target = static_cast<size_t>(insertion.target);
      if (taken[target]) continue;
      taken[target] = true;
      bytes += static_cast<double>(cost_.bytes(insertion.target));
      chosen.push_back(insertion);
    }
    if (chosen.size() < 2) return false;
    std::stable_sort(chosen.begin(), chosen.end(), [](const Insertion& a, const Insertion& b) {
      return a.before < b.before;
    });
    std::vector<OpId> order = with(found.order, chosen);
    const OrderCost::Result cost = evaluate(order);
    if (!cost.legal || cost.overflow >= found.cost.overflow) continue;
    found = {.order = std::move(order), .cost = cost, .fits = cost.overflow == 0};
    return true;
  }
  return false;
}

bool OrderSearch::repair_step(Found& found) {
  if (exhausted()) return false;
  look_at(found);
  size_t position = found.cost.peak_position;
  for (int tried = 0; tried <= kOtherPositions; ++tried) {
    const std::vector<Insertion> insertions = insertions_at(position, kEvaluatedPerStep);
    Found best;
    double best_ratio = 0;
    for (const Insertion& insertion : insertions) {
      std::vector<OpId> order = with(found.order, {&insertion, 1});
      const OrderCost::Result cost = evaluate(order);
      if (!cost.legal || cost.overflow >= found.cost.overflow) continue;
      const double found_ratio =
          noise() * ratio(found.cost.overflow - cost.overflow, cost.time_ns - found.cost.time_ns);
      if (found_ratio <= best_ratio) continue;
      best_ratio = found_ratio;
      best.order = std::move(order);
      best.cost = cost;
      best.fits = cost.overflow == 0;
    }
    if (best_ratio > 0) {
      found = std::move(best);
      return true;
    }
    // Nothing at the peak helps: another place above the budget may be a way round.
    const int32_t over = over_before_.back();
    if (over == 0) return false;
    const int32_t chosen = static_cast<int32_t>(random_below(static_cast<size_t>(over)));
    position = static_cast<size_t>(
        std::upper_bound(over_before_.begin(), over_before_.end(), chosen) - over_before_.begin() - 1);
  }
  return false;
}

void OrderSearch::sum_excess() {
  excess_before_.assign(resident_.size() + 1, 0);
  over_before_.assign(resident_.size() + 1, 0);
  ends_of_excess_.clear();
  most_in_stretch_.assign(resident_.size() / kStretch + 1, 0);
  for (size_t i = 0; i < resident_.size(); ++i) {
    most_in_stretch_[i / kStretch] = std::max(most_in_stretch_[i / kStretch], resident_[i]);
    const int64_t excess = std::max<int64_t>(0, resident_[i] - settings_.budget_bytes);
    excess_before_[i + 1] = excess_before_[i] + static_cast<double>(excess);
    over_before_[i + 1] = over_before_[i] + (excess > 0 ? 1 : 0);
    if (excess == 0 && i > 0 && over_before_[i] > over_before_[i - 1]) ends_of_excess_.push_back(i);
  }
}

// Where to make the value again, if it is idle at `position` and next used at `use`: right before the
// use, or earlier, while something that it is made from is still there, or as soon as there is room.
void OrderSearch::find_places(ValueIndex value, size_t position, size_t use) {
  places_.assign(1, use);
  if (graph_.ops.size() > kOneByOne) return;
  const auto propose = [&](size_t place) {
    if (place > position && place < use &&
        std::find(places_.begin(), places_.end(), place) == places_.end()) {
      places_.push_back(place);
    }
  };
  const size_t room_from = static_cast<size_t>(
      std::lower_bound(ends_of_excess_.begin(), ends_of_excess_.end(), position + 1) -
      ends_of_excess_.begin());
  if (room_from < ends_of_excess_.size()) propose(ends_of_excess_[room_from]);
  for (const ValueIndex input : cost_.reads(maker_[static_cast<size_t>(value)])) {
    if (places_.size() >= kPlaces) break;
    // The last use of the copy that is there: the uses from here on until it is made anew.
    const auto events = timeline_.events(input);
    auto last = timeline_.next(input, position + 1);
    if (last == events.end() || last->makes) continue;
    while (last + 1 != events.end() && !(last + 1)->makes) ++last;
    propose(static_cast<size_t>(last->position));
  }
}

// Every value that is idle at the position, and the places where it could be made again.
std::vector<OrderSearch::Spot> OrderSearch::spots_at(size_t position) {
  std::vector<Spot> spots;
  for (size_t v = 0; v < cost_.value_count(); ++v) {
    const ValueIndex value = static_cast<ValueIndex>(v);
    if (cost_.bytes(value) == 0 || !rerunnable_[index(maker_[v])]) continue;
    const auto events = timeline_.events(value);
    const auto next = timeline_.next(value, position);
    if (next == events.begin()) continue;
    // An output that nobody uses any more is needed at the end of the step.
    const bool at_end = next == events.end() && output_[v] && graph_.ops.size() <= kOneByOne;
    if (!at_end && (next == events.end() || next->makes)) continue;
    const size_t use = at_end ? resident_.size() : static_cast<size_t>(next->position);
    if (use == position) continue;  // in use, not idle
    const size_t from = static_cast<size_t>((next - 1)->position) + 1;
    if (from > position) continue;  // being made
    find_places(value, position, use);
    for (const size_t place : places_) {
      const double gain =
          std::min(excess_before_[place] - excess_before_[from],
                   static_cast<double>(cost_.bytes(value)) *
                       (over_before_[place] - over_before_[from]));
      if (gain <= 0) continue;
      spots.push_back({.target = value,
                       .before = place,
                       .gain = gain,
                       .most_ratio = ratio(gain, graph_.op(maker_[v]).time_ns)});
    }
  }
  cost_.add_work(static_cast<int64_t>(cost_.value_count()));
  return spots;
}

// The best `most` by their ratio, best first. Finding out what a value would be made from takes
// longest, so the values come by what they could be worth at most, until none that is left can be
// among the best.
std::vector<OrderSearch::Insertion> OrderSearch::insertions_at(size_t position, size_t most) {
  std::vector<Spot> spots = spots_at(position);
  std::stable_sort(spots.begin(), spots.end(),
                   [](const Spot& a, const Spot& b) { return a.most_ratio > b.most_ratio; });
  const auto better = [](const Insertion& a, const Insertion& b) {
    return ratio(a.gain, a.time_ns) > ratio(b.gain, b.time_ns);
  };
  std::vector<Insertion> best;
  for (const Spot& spot : spots) {
    const bool full = best.size() >= most;
    const double to_beat = full ? ratio(best.back().gain, best.back().time_ns) : 0;
    if (to_beat >= spot.most_ratio) break;
    for (const Staying staying : {Staying::none, Staying::where_it_fits, Staying::if_smaller}) {
      Insertion insertion;
      insertion.target = spot.target;
      insertion.before = spot.before;
      insertion.gain = spot.gain;
      if (!collect_block(staying, to_beat, insertion) || is_tabu(insertion)) continue;
      const bool known = std::any_of(best.begin(), best.end(), [&](const Insertion& other) {
        return other.before == insertion.before && other.block == insertion.block;
      });
      if (known) continue;
      best.insert(std::upper_bound(best.begin(), best.end(), insertion, better), std::move(insertion));
      if (best.size() > most) best.pop_back();
    }
  }
  return best;
}

bool OrderSearch::is_tabu(const Insertion& insertion) const {
  return std::any_of(tabu_.begin(), tabu_.end(), [&](OpId op) {
    return std::binary_search(insertion.block.begin(), insertion.block.end(), op);
  });
}

// Whether a copy is there just before the position: for a use to come, or as an output.
bool OrderSearch::there(ValueIndex value, size_t before) const {
  if (timeline_.alive(value, before)) return true;
  if (!output_[static_cast<size_t>(value)]) return false;
  const auto next = timeline_.next(value, before);
  return next == timeline_.events(value).end() && next != timeline_.events(value).begin();
}

// Whether the value's last copy before the position could stay until then and everything still fit.
bool OrderSearch::fits_longer(ValueIndex value, size_t before) const {
  const auto events = timeline_.events(value);
  const auto next = timeline_.next(value, before);
  if (next == events.begin()) return false;
  const size_t from = static_cast<size_t>((next - 1)->position) + 1;
  return most_resident(from, before) <= settings_.budget_bytes - cost_.bytes(value);
}

// Of the positions from `from` up to `before`.
int64_t OrderSearch::most_resident(size_t from, size_t before) const {
  int64_t most = 0;
  while (from < before) {
    const bool whole = from % kStretch == 0 && from + kStretch <= before;
    most = std::max(most, whole ? most_in_stretch_[from / kStretch] : resident_[from]);
    from += whole ? kStretch : 1;
  }
  return most;
}

// The ops that make the target again at this place, from what is there and what shall have stayed.
// False if they cannot, or take so long that the ratio is not above `to_beat`.
bool OrderSearch::collect_block(Staying staying, double to_beat, Insertion& insertion) {
  const auto [target, before] = std::pair(insertion.target, insertion.before);
  int64_t room = cost_.bytes(target);  // for what stays beyond the budget
  ++stamp_;
  wanted_.clear();
  wanted_.push_back({target, true});
  while (!wanted_.empty()) {
    const auto [value, fresh] = wanted_.back();
    wanted_.pop_back();
    const size_t v = static_cast<size_t>(value);
    if (!fresh && there(value, before)) continue;
    const Storage& storage = graph_.storage(cost_.storage(value));
    if (storage.external()) continue;  // evaluate will see if it is another version by now
    const OpId maker = maker_[v];
    if (in_block_[index(maker)] == stamp_) continue;
    if (!rerunnable_[index(maker)]) {
      if (fresh) return false;
      continue;
    }
    if (!fresh && staying != Staying::none && fits_longer(value, before)) continue;
    if (!fresh && staying == Staying::if_smaller && cost_.bytes(value) < room &&
        timeline_.next(value, before) != timeline_.events(value).begin()) {
      room -= cost_.bytes(value);
      continue;
    }
    in_block_[index(maker)] = stamp_;
    insertion.block.push_back(maker);
    insertion.time_ns += graph_.op(maker).time_ns;
    cost_.add_work(kWorkPerOpOfBlock);
    if (insertion.block.size() > kLargestBlock ||
        ratio(insertion.gain, insertion.time_ns) <= to_beat) {
      return false;
    }
    for (const ValueIndex read : cost_.reads(maker)) wanted_.push_back({read, false});
    for (const OrderCost::Update& update : cost_.updates(maker)) {
      wanted_.push_back({update.before, true});
    }
  }
  std::sort(insertion.block.begin(), insertion.block.end());
  return true;
}

// The insertions must stand in the order of their places.
std::vector<OpId> OrderSearch::with(const std::vector<OpId>& order,
                                    std::span<const Insertion> insertions) const {
  std::vector<OpId> result;
  size_t copied = 0;
  for (const Insertion& insertion : insertions) {
    result.insert(result.end(), order.begin() + static_cast<std::ptrdiff_t>(copied),
                  order.begin() + static_cast<std::ptrdiff_t>(insertion.before));
    result.insert(result.end(), insertion.block.begin(), insertion.block.end());
    copied = insertion.before;
  }
  result.insert(result.end(), order.begin() + static_cast<std::ptrdiff_t>(copied), order.end());
  return result;
}

}  // namespace remat
