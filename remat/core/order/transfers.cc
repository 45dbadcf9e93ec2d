// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/transfers.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>

namespace remat {
namespace {

// Positions are those of the order without transfers: something at `p` stands before its p-th element.
class InTime {
 public:
  InTime(const Graph& graph, const OrderCost& cost, std::span<const OpId> order)
      : graph_(graph),
        cost_(cost),
        touched_(cost.value_count(), 0),
        ended_(cost.value_count(), kNone),
        begun_(cost.value_count(), kNone) {
    read(needed_of(order));
  }

  std::vector<OpId> order() {
    end_writes();
    begin_reads();
    std::vector<Placed> placed;
    for (const Write& write : writes_) placed.push_back({write.ends_at, write.op});
    for (const Read& read : reads_) placed.push_back({read.begins_at, read.op});
    std::ranges::stable_sort(placed, {}, &Placed::position);
    std::vector<OpId> result;
    auto next = placed.begin();
    for (size_t p = 0; p <= rest_.size(); ++p) {
      for (; next != placed.end() && next->position == p; ++next) result.push_back(next->op);
      if (p < rest_.size()) result.push_back(rest_[p]);
    }
    return result;
  }

 private:
  using ValueIndex = OrderCost::ValueIndex;
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // Another copy of the value may be made and used between the two; a transfer is not moved past such a use.
  struct Write {
    OpId op{};
    size_t begins_at = 0;  // right after the last use of the copy
    size_t latest = kNone;
    size_t ends_at = 0;
  };
  struct Read {
    OpId op{};
    size_t write = kNone;  // none, if the order is not legal
    size_t earliest = 0;
    size_t used_at = kNone;
    size_t begins_at = 0;
  };
  struct Placed {
    size_t position;
    OpId op;
  };

  static size_t at(ValueIndex value) { return static_cast<size_t>(value); }
  bool is(OpId id, MoveKind kind) const {
    return graph_.is_move(id) && graph_.move(id).kind == kind;
  }

  // The order without needless transfers: in another place, something might read what they bring back.
  std::vector<OpId> needed_of(std::span<const OpId> order) const {
    NeededCopies copies = cost_.needed_at_the_end();
    std::vector<OpId> needed;
    for (size_t i = order.size(); i-- > 0;) {
      const OpId op = order[i];
      if (graph_.is_transfer(op) && !copies.needed(at(cost_.creates(op)[0]))) continue;
      needed.push_back(op);
      cost_.step_back(op, copies);
    }
    std::ranges::reverse(needed);
    return needed;
  }

  // Takes the order apart: which op uses what was brought back, and where it was last used before.
  void read(const std::vector<OpId>& order) {
    begin_ns_.push_back(0);
    for (const OpId op : order) {
      const size_t position = rest_.size();
      if (is(op, MoveKind::offload)) {
        const ValueIndex value = cost_.reads(op)[0];
        ended_[at(value)] = writes_.size();
        written_[cost_.creates(op)[0]] = writes_.size();
        writes_.push_back({.op = op, .begins_at = touched_[at(value)]});
        continue;
      }
      if (is(op, MoveKind::prefetch)) {
        const ValueIndex value = cost_.creates(op)[0];
        begun_[at(value)] = reads_.size();
        const auto write = written_.find(cost_.reads(op)[0]);
        reads_.push_back({.op = op,
                          .write = write == written_.end() ? kNone : write->second,
                          .earliest = touched_[at(value)]});
        continue;
      }
      for (const ValueIndex value : cost_.reads(op)) touch(value, position);
      for (const OrderCost::Update& update : cost_.updates(op)) {
        touch(update.before, position);
        touch(update.after, position);
      }
      for (const ValueIndex value : cost_.creates(op)) touch(value, position);
      rest_.push_back(op);
      begin_ns_.push_back(begin_ns_.back() + cost_.time_ns(op));
    }
    for (Write& write : writes_) write.latest = std::min(write.latest, rest_.size());
    for (Read& each : reads_) each.used_at = std::min(each.used_at, rest_.size());
  }

  void touch(ValueIndex value, size_t position) {
    touched_[at(value)] = position + 1;
    if (size_t& read = begun_[at(value)]; read != kNone) {
      reads_[read].used_at = position;
      read = kNone;
    }
    if (size_t& write = ended_[at(value)]; write != kNone) {
      writes_[write].latest = position;
      write = kNone;
    }
  }

  void end_writes() {
    std::vector<size_t> by_begin(writes_.size());
    for (size_t i = 0; i < by_begin.size(); ++i) by_begin[i] = i;
    std::ranges::stable_sort(by_begin, {}, [&](size_t i) { return writes_[i].begins_at; });
    int64_t channel_free_ns = 0;
    for (const size_t i : by_begin) {
      Write& write = writes_[i];
      const int64_t bytes = cost_.bytes(cost_.reads(write.op)[0]);
      channel_free_ns = std::max(channel_free_ns, begin_ns_[write.begins_at]) +
                        graph_.channel->write_ns(bytes);
      const auto ended = std::lower_bound(begin_ns_.begin(), begin_ns_.end(), channel_free_ns);
      write.ends_at = std::min(static_cast<size_t>(ended - begin_ns_.begin()), write.latest);
    }
  }

  // A read follows its write.
  void begin_reads() {
    std::vector<size_t> by_use(reads_.size());
    for (size_t i = 0; i < by_use.size(); ++i) by_use[i] = i;
    std::ranges::stable_sort(by_use, std::greater{}, [&](size_t i) { return reads_[i].used_at; });
    int64_t next_begins_ns = std::numeric_limits<int64_t>::max();
    for (const size_t i : by_use) {
      Read& read = reads_[i];
      const int64_t bytes = cost_.bytes(cost_.creates(read.op)[0]);
      next_begins_ns = std::min(next_begins_ns, begin_ns_[read.used_at]) -
                       graph_.channel->read_ns(bytes);
      const auto later = std::upper_bound(begin_ns_.begin(), begin_ns_.end(), next_begins_ns);
      const size_t begins_at =
          later == begin_ns_.begin() ? 0 : static_cast<size_t>(later - begin_ns_.begin()) - 1;
      const size_t written = read.write == kNone ? 0 : writes_[read.write].ends_at;
      const size_t earliest = std::max(read.earliest, written);
      read.begins_at = std::clamp(begins_at, earliest, read.used_at);
    }
  }

  const Graph& graph_;
  const OrderCost& cost_;
  std::vector<OpId> rest_;         // the order without transfers
  std::vector<int64_t> begin_ns_;  // by position, without any waiting; one more, the end
  std::vector<Write> writes_;
  std::vector<Read> reads_;
  std::unordered_map<ValueIndex, size_t> written_;  // by offloaded form: its last write
  std::vector<size_t> touched_;    // by value: the position after its last use
  std::vector<size_t> ended_;      // by value: a write after which no op has touched it yet
  std::vector<size_t> begun_;      // by value: a read whose copy no op has touched yet
};

}  // namespace

std::vector<OpId> with_transfers_in_time(const Graph& graph, const OrderCost& cost,
                                         std::span<const OpId> order) {
  return InTime(graph, cost, order).order();
}

}  // namespace remat
