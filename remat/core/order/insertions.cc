// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/insertions.h"

#include <algorithm>

namespace remat {
namespace {

constexpr size_t kMostPlaces = 4;
constexpr size_t kMostOpsForPlaces =
    1'500;  // beyond, a value is made again right before its use only
constexpr size_t kLargestBlock = 200;
constexpr int64_t kWorkPerOpOfBlock = 30;  // look-ups in the timeline are not cheap
constexpr int64_t kWorkPerOpToLookAt = 6;  // to build the timeline and the profile
constexpr double kNoTime = 1e-3;           // in place of 0 ns, so that ratios are finite

}  // namespace

double ratio(double gain, int64_t time_ns) {
  return gain / (static_cast<double>(time_ns) + kNoTime);
}

std::vector<OpId> with_insertions(const std::vector<OpId>& order,
                                  std::span<const Insertion> insertions) {
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

InsertionFinder::InsertionFinder(const SearchContext& context)
    : context_(context), cost_(context.cost), in_block_(context.graph.ops.size(), 0) {}

void InsertionFinder::look_at(const std::vector<OpId>& order, Effort& effort) {
  profile_.build(cost_.resident_bytes(), context_.budget_bytes);
  timeline_.build(cost_, order);
  effort.spend(kWorkPerOpToLookAt * static_cast<int64_t>(order.size()));
}

// Where to make the value again, if it is idle at `position` and next used at `use`: right before the
// use, or earlier, while something that it is made from is still there, or as soon as there is room.
void InsertionFinder::find_places(ValueIndex value, size_t position, size_t use) {
  places_.assign(1, use);
  if (context_.graph.ops.size() > kMostOpsForPlaces) return;
  const auto propose = [&](size_t place) {
    if (place > position && place < use &&
        std::find(places_.begin(), places_.end(), place) == places_.end()) {
      places_.push_back(place);
    }
  };
  if (const std::optional<size_t> room = profile_.room_after(position)) propose(*room);
  for (const ValueIndex input : cost_.reads(context_.maker[static_cast<size_t>(value)])) {
    if (places_.size() >= kMostPlaces) break;
    // The last use of the copy that is there: the uses from here on until it is made anew.
    const auto events = timeline_.events(input);
    auto last = timeline_.next(input, position + 1);
    if (last == events.end() || last->makes) continue;
    while (last + 1 != events.end() && !(last + 1)->makes) ++last;
    propose(static_cast<size_t>(last->position));
  }
}

// Every value that is idle at the position, and the places where it could be made again.
std::vector<InsertionFinder::Spot> InsertionFinder::spots_at(size_t position, Effort& effort) {
  std::vector<Spot> spots;
  for (size_t v = 0; v < cost_.value_count(); ++v) {
    const ValueIndex value = static_cast<ValueIndex>(v);
    const OpId maker = context_.maker[v];
    if (cost_.bytes(value) == 0 || !context_.rerunnable[index(maker)]) continue;
    const auto events = timeline_.events(value);
    const auto next = timeline_.next(value, position);
    if (next == events.begin()) continue;
    // An output that nobody uses any more is needed at the end of the step.
    const bool at_end = next == events.end() && context_.output[v] != 0 &&
                        context_.graph.ops.size() <= kMostOpsForPlaces;
    if (!at_end && (next == events.end() || next->makes)) continue;
    const size_t use = at_end ? profile_.size() : static_cast<size_t>(next->position);
    if (use == position) continue;  // in use, not idle
    const size_t from = static_cast<size_t>((next - 1)->position) + 1;
    if (from > position) continue;  // being made
    find_places(value, position, use);
    for (const size_t place : places_) {
      const double gain = profile_.removed(from, place, cost_.bytes(value));
      if (gain <= 0) continue;
      spots.push_back({.target = value,
                       .before = place,
                       .gain = gain,
                       .most_ratio = ratio(gain, context_.graph.op(maker).time_ns)});
    }
  }
  effort.spend(static_cast<int64_t>(cost_.value_count()));
  return spots;
}

// Finding out what a value would be made from takes longest, so the values come by what they could be
// worth at most, until none that is left can be among the best.
std::vector<Insertion> InsertionFinder::at(size_t position, size_t most, std::optional<OpId> tabu,
                                           Effort& effort) {
  std::vector<Spot> spots = spots_at(position, effort);
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
      if (!collect_block(staying, to_beat, insertion, effort)) continue;
      if (tabu && std::binary_search(insertion.block.begin(), insertion.block.end(), *tabu))
        continue;
      const bool known = std::any_of(best.begin(), best.end(), [&](const Insertion& other) {
        return other.before == insertion.before && other.block == insertion.block;
      });
      if (known) continue;
      best.insert(std::upper_bound(best.begin(), best.end(), insertion, better),
                  std::move(insertion));
      if (best.size() > most) best.pop_back();
    }
  }
  return best;
}

// Whether a copy is there just before the position: for a use to come, or as an output.
bool InsertionFinder::is_there(ValueIndex value, size_t before) const {
  if (timeline_.alive(value, before)) return true;
  if (context_.output[static_cast<size_t>(value)] == 0) return false;
  const auto next = timeline_.next(value, before);
  return next == timeline_.events(value).end() && next != timeline_.events(value).begin();
}

// Whether the value's last copy before the position could stay until then and everything still fit.
bool InsertionFinder::fits_longer(ValueIndex value, size_t before) const {
  const auto next = timeline_.next(value, before);
  if (next == timeline_.events(value).begin()) return false;
  const size_t from = static_cast<size_t>((next - 1)->position) + 1;
  return profile_.most_resident(from, before) <= context_.budget_bytes - cost_.bytes(value);
}

// The ops that make the target again at this place, from what is there and what shall have stayed.
// False if they cannot, or take so long that the ratio is not above `to_beat`.
bool InsertionFinder::collect_block(Staying staying, double to_beat, Insertion& insertion,
                                    Effort& effort) {
  const auto [target, before] = std::pair(insertion.target, insertion.before);
  int64_t room = cost_.bytes(target);  // for what stays beyond the budget
  ++stamp_;
  wanted_.clear();
  wanted_.push_back({target, true});
  while (!wanted_.empty()) {
    const auto [value, fresh] = wanted_.back();
    wanted_.pop_back();
    if (!fresh && is_there(value, before)) continue;
    const Storage& storage = context_.graph.storage(cost_.storage(value));
    if (storage.external()) continue;  // evaluate will see if it is another version by now
    const OpId maker = context_.maker[static_cast<size_t>(value)];
    if (in_block_[index(maker)] == stamp_) continue;
    if (!context_.rerunnable[index(maker)]) {
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
    insertion.time_ns += context_.graph.op(maker).time_ns;
    effort.spend(kWorkPerOpOfBlock);
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

}  // namespace remat
