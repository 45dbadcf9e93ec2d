// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/insertions.h"

#include <algorithm>

namespace remat {
namespace {

// Places where a value could be made again: its use, the first with room, and the last uses of two inputs. Each
// costs three blocks to find. In graphs of more ops, where there are values enough to choose from, only the use.
constexpr size_t kMostPlaces = 4;
constexpr size_t kMostOpsForPlaces = 1'500;
constexpr size_t kLargestBlock = 200;  // ops to make one value again: bounds the work for it
constexpr int64_t kWorkPerOpOfBlock = 30;  // look-ups in the timeline are not cheap
constexpr int64_t kWorkPerOpToLookAt = 6;  // to build the timeline and the profile
constexpr double kNoTime = 1e-3;           // in place of 0 ns, so that ratios are finite

}  // namespace

double ratio(double gain, int64_t time_ns) {
  return gain / (static_cast<double>(time_ns) + kNoTime);
}

std::vector<OpId> with_insertions(const std::vector<OpId>& order,
                                  std::span<const Insertion> insertions) {
  struct Piece {
    size_t before;
    std::span<const OpId> ops;
  };
  std::vector<Piece> pieces;
  std::vector<std::pair<size_t, OpId>> readers;
  for (const Insertion& insertion : insertions) {
    if (insertion.leaving) pieces.push_back({insertion.leaving_before, {&*insertion.leaving, 1}});
    if (!insertion.block.empty()) pieces.push_back({insertion.before, insertion.block});
    if (insertion.reader) readers.emplace_back(insertion.before, *insertion.reader);
  }
  std::ranges::stable_sort(pieces, {}, &Piece::before);
  std::vector<OpId> result;
  auto next = pieces.begin();
  for (size_t i = 0; i <= order.size(); ++i) {
    for (; next != pieces.end() && next->before == i; ++next) {
      result.insert(result.end(), next->ops.begin(), next->ops.end());
    }
    if (i == order.size()) break;
    const auto reader = std::ranges::find(readers, i, &std::pair<size_t, OpId>::first);
    result.push_back(reader == readers.end() ? order[i] : reader->second);
  }
  return result;
}

InsertionFinder::InsertionFinder(SearchContext& context)
    : context_(context), cost_(context.cost), in_block_(context.graph.op_count(), 0) {}

void InsertionFinder::look_at(const std::vector<OpId>& order, Effort& effort) {
  order_ = &order;
  profile_.build(cost_.resident_bytes(), context_.budget_bytes);
  timeline_.build(cost_, order);
  effort.spend(kWorkPerOpToLookAt * static_cast<int64_t>(order.size()));
  if (!context_.graph.channel) return;
  cost_.find_times(order, begin_ns_);
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

// Moves of a value that is idle from `from` on until it is used at `use`.
void InsertionFinder::add_moves(ValueIndex value, size_t from, size_t use,
                                std::vector<Insertion>& moves) {
  const MovesOfValue& of = context_.moves[static_cast<size_t>(value)];
  if (of.pack && use < order_->size()) {
    const int64_t less = cost_.bytes(value) - cost_.bytes(of.packed);
    Insertion packing;
    packing.target = value;
    packing.before = use;
    if (!timeline_.alive(of.packed, from)) {
      packing.leaving = of.pack;
      packing.leaving_before = from;
      packing.time_ns = cost_.time_ns(*of.pack);
    }
    const auto next = timeline_.next(value, use + 1);
    const bool last_use = next == timeline_.events(value).end() || next->makes;
    const auto reader = std::ranges::find(of.readers, (*order_)[use], &MovesOfValue::Reader::op);
    if (last_use && reader != of.readers.end()) {
      Insertion direct = packing;
      direct.reader = reader->read_packed;
      direct.gain = profile_.removed(from, use + 1, less);
      if (direct.gain > 0) moves.push_back(std::move(direct));
    }
    if (of.unpack) {
      packing.block = {*of.unpack};
      packing.time_ns += cost_.time_ns(*of.unpack);
      packing.gain = profile_.removed(from, use, less);
      if (packing.gain > 0) moves.push_back(std::move(packing));
    }
  }
  if (of.offload) add_transfers(value, from, use, moves);
}

// Each of the two transfers either right at the use, and an op waits for it, or beside the ops, and the bytes
// are away for a shorter time.
void InsertionFinder::add_transfers(ValueIndex value, size_t from, size_t use,
                                    std::vector<Insertion>& moves) {
  const MovesOfValue& of = context_.moves[static_cast<size_t>(value)];
  const int64_t bytes = cost_.bytes(value);
  if (profile_.removed(from, use, bytes) <= 0) return;
  // What was written once can be read as often as one likes.
  const bool written_before =
      timeline_.next(of.away, from) != timeline_.events(of.away).begin();
  const int64_t write_ns = written_before ? 0 : context_.graph.channel->write_ns(bytes);
  const int64_t read_ns = context_.graph.channel->read_ns(bytes);
  const auto first_at = [&](int64_t ns) {
    return static_cast<size_t>(std::ranges::lower_bound(begin_ns_, ns) - begin_ns_.begin());
  };
  const size_t written = written_before ? from : first_at(begin_ns_[from] + write_ns);
  const size_t begun = std::max(first_at(begin_ns_[use] - read_ns + 1), size_t{1}) - 1;
  for (const bool leaves_at_once : {false, true}) {
    for (const bool back_at_once : {false, true}) {
      if (leaves_at_once && written == from) continue;  // the same
      Insertion transfers;
      transfers.target = value;
      transfers.block = {*of.prefetch};
      if (!written_before) transfers.leaving = of.offload;
      transfers.leaving_before = leaves_at_once ? from : written;
      transfers.before = back_at_once ? use : begun;
      if (transfers.leaving_before > transfers.before) continue;
      transfers.time_ns = (leaves_at_once ? write_ns : 0) + (back_at_once ? read_ns : 0);
      const int64_t beside_ns = write_ns + read_ns - transfers.time_ns;
      transfers.price_ns =
          static_cast<int64_t>(context_.channel_price * static_cast<double>(beside_ns));
      transfers.gain = profile_.removed(transfers.leaving_before, transfers.before, bytes);
      transfers.in_time = transfers.time_ns == 0;
      if (transfers.gain > 0) moves.push_back(std::move(transfers));
    }
  }
}

// Every value that is idle at the position, and the places where it could be made again.
std::vector<InsertionFinder::Spot> InsertionFinder::spots_at(size_t position,
                                                             std::vector<Insertion>& moves,
                                                             Effort& effort) {
  std::vector<Spot> spots;
  for (size_t v = 0; v < cost_.value_count(); ++v) {
    const ValueIndex value = static_cast<ValueIndex>(v);
    const OpId maker = context_.maker[v];
    const bool has_moves = !context_.moves.empty() &&
                           (context_.moves[v].pack || context_.moves[v].offload);
    if (cost_.bytes(value) == 0 || !(context_.rerunnable[index(maker)] || has_moves)) continue;
    const auto events = timeline_.events(value);
    const auto next = timeline_.next(value, position);
    if (next == events.begin()) continue;
    // An output without a later use is needed at the end of the step.
    const bool at_end = next == events.end() && context_.output[v] != 0 &&
                        context_.graph.ops.size() <= kMostOpsForPlaces;
    if (!at_end && (next == events.end() || next->makes)) continue;
    const size_t use = at_end ? profile_.size() : static_cast<size_t>(next->position);
    if (use == position) continue;  // in use, not idle
    const size_t from = static_cast<size_t>((next - 1)->position) + 1;
    if (from > position) continue;  // being made
    if (has_moves) add_moves(value, from, use, moves);
    if (!context_.rerunnable[index(maker)]) continue;
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
  std::vector<Insertion> best;
  std::vector<Spot> spots = spots_at(position, best, effort);
  std::stable_sort(spots.begin(), spots.end(),
                   [](const Spot& a, const Spot& b) { return a.most_ratio > b.most_ratio; });
  const auto ratio_of = [](const Insertion& a) { return ratio(a.gain, a.time_ns + a.price_ns); };
  const auto better = [&](const Insertion& a, const Insertion& b) {
    return ratio_of(a) > ratio_of(b);
  };
  // Moves are few kinds for many values: they may take half of the places.
  std::stable_sort(best.begin(), best.end(), better);
  if (tabu) {
    std::erase_if(best, [&](const Insertion& move) {
      return move.reader == tabu || std::ranges::find(move.block, *tabu) != move.block.end();
    });
  }
  if (best.size() > (most + 1) / 2) best.resize((most + 1) / 2);
  for (const Spot& spot : spots) {
    const bool full = best.size() >= most;
    const double to_beat = full ? ratio_of(best.back()) : 0;
    if (to_beat >= spot.most_ratio) break;
    for (const Staying staying : {Staying::none, Staying::where_it_fits, Staying::if_smaller}) {
      Insertion insertion;
      insertion.target = spot.target;
      insertion.before = spot.before;
      insertion.gain = spot.gain;
      if (!collect_block(staying, to_beat, insertion, effort)) continue;
      if (tabu && std::ranges::find(insertion.block, *tabu) != insertion.block.end()) continue;
      const bool known = std::any_of(best.begin(), best.end(), [&](const Insertion& other) {
        return other.before == insertion.before && other.block == insertion.block && !other.leaving;
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

// A move that brings back a value whose packed or offloaded form is there.
std::optional<OpId> InsertionFinder::brought_back_by(ValueIndex value, size_t before) const {
  if (context_.moves.empty()) return std::nullopt;
  const MovesOfValue& of = context_.moves[static_cast<size_t>(value)];
  if (of.unpack && timeline_.alive(of.packed, before)) return of.unpack;
  if (of.prefetch && timeline_.alive(of.away, before)) return of.prefetch;
  return std::nullopt;
}

// The ops that make the target again at this place, from what is there and what is kept for them (`staying`).
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
    const std::optional<OpId> back = fresh ? std::nullopt : brought_back_by(value, before);
    const OpId maker = back.value_or(context_.maker[static_cast<size_t>(value)]);
    if (in_block_[index(maker)] == stamp_) continue;
    if (!back && !context_.rerunnable[index(maker)]) {
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
    insertion.time_ns += cost_.time_ns(maker);
    effort.spend(kWorkPerOpOfBlock);
    if (insertion.block.size() > kLargestBlock ||
        ratio(insertion.gain, insertion.time_ns) <= to_beat) {
      return false;
    }
    if (back) continue;
    for (const ValueIndex read : cost_.reads(maker)) wanted_.push_back({read, false});
    for (const OrderCost::Update& update : cost_.updates(maker)) {
      wanted_.push_back({update.before, true});
    }
  }
  // Moves need nothing that the block makes; ops come in the order of the graph.
  const auto place = [&](OpId op) {
    return context_.graph.is_move(op) ? 0 : 1 + index(op);
  };
  std::ranges::sort(insertion.block, {}, place);
  return true;
}

}  // namespace remat
