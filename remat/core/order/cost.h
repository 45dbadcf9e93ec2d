// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/needed_copies.h"

namespace remat {

// simulate(rewrite(order)) in one backward pass over flat arrays, for planners that look at tens of
// thousands of orders a second. It builds no schedule: going backwards, a value is live from its
// last use to the run that makes it, and that is all the memory model needs.
//
//     order     f1   f2   f3   f1   b2         f1 stands twice
//     a1 live   ├────┤         ├────┤          ◀── read from the right
//
// It is not a second model: tests hold it equal to simulate, byte for byte, on thousands of orders,
// and every plan that leaves a strategy has been through simulate itself. Where an order holds transfers
// a second pass, forwards, finds the time.
class OrderCost {
 public:
  explicit OrderCost(const Graph& graph);

  struct Result {
    bool legal = false;      // as rewrite would accept it, mutual order of first runs apart
    int64_t peak_bytes = 0;  // meaningless unless legal, like the rest
    size_t peak_position = 0;
    int64_t time_ns = 0;
    bool transfers = false;  // it holds offloads or prefetches
    double overflow = 0;  // bytes above the budget, summed over positions
  };
  // The order must hold every op and re-run none that is not rerunnable.
  Result evaluate(std::span<const OpId> order, int64_t budget_bytes);

  // Bytes resident at each position of the order evaluated last.
  std::span<const int64_t> resident_bytes() const { return resident_; }

  // When each position begins, and when the order ends. Of the order evaluated last.
  void find_times(std::span<const OpId> order, std::vector<int64_t>& begin_ns);

  static constexpr int64_t kWorkPerOp = 4;  // of evaluate, in units of effort.h: an op's operands

  // Values are numbered: all versions of a storage in a row. Externals that never change are not
  // values here: they are always at hand.
  using ValueIndex = int32_t;
  static constexpr ValueIndex kAlwaysThere = -1;

  struct Update {
    ValueIndex before;
    ValueIndex after;
  };
  struct ReusePair {
    ValueIndex result;
    ValueIndex source;
    int64_t shared_bytes;  // counted once if the source dies
  };
  std::span<const ValueIndex> reads(OpId op) const { return slice(reads_, read_start_, op); }
  std::span<const Update> updates(OpId op) const { return slice(updates_, update_start_, op); }
  std::span<const ValueIndex> creates(OpId op) const { return slice(creates_, create_start_, op); }
  std::span<const ReusePair> reuse(OpId op) const { return slice(reuse_, reuse_start_, op); }
  size_t value_count() const { return bytes_.size(); }
  int64_t time_ns(OpId op) const { return time_ns_[index(op)]; }  // transfers take none of their own
  int64_t bytes(ValueIndex value) const { return bytes_[static_cast<size_t>(value)]; }
  StorageId storage(ValueIndex value) const { return storage_[static_cast<size_t>(value)]; }
  int32_t version(ValueIndex value) const { return version_[static_cast<size_t>(value)]; }
  std::span<const ValueIndex> outputs() const { return outputs_; }
  // The copies that are needed when the order is over; and before an op, from those needed after it.
  NeededCopies needed_at_the_end() const;
  void step_back(OpId op, NeededCopies& copies) const;
  // kAlwaysThere for an external that never changes.
  ValueIndex value_of(const Value& value) const;

 private:
  template <typename T>
  static std::span<const T> slice(const std::vector<T>& all, const std::vector<int32_t>& start,
                                  OpId op) {
    const size_t begin = static_cast<size_t>(start[index(op)]);
    const size_t end = static_cast<size_t>(start[index(op) + 1]);
    return {all.data() + begin, end - begin};
  }

  void number_values(const Graph& graph);
  void flatten_ops(const Graph& graph);
  int64_t time_with_transfers(std::span<const OpId> order, std::vector<int64_t>* begin_ns);

  std::vector<int64_t> bytes_;      // by value; 0 for externals, which are counted once for all
  std::vector<StorageId> storage_;  // by value
  std::vector<int32_t> version_;    // by value
  std::vector<ValueIndex> first_value_;  // by storage: its version 0, or kAlwaysThere
  std::vector<ValueIndex> outputs_;
  std::vector<int32_t> read_start_, update_start_, create_start_, reuse_start_;  // by op, one more
  std::vector<ValueIndex> reads_, creates_;
  std::vector<Update> updates_;
  std::vector<ReusePair> reuse_;
  std::vector<int64_t> workspace_, time_ns_;  // by op
  enum class Transfer : uint8_t { none, offload, prefetch };
  std::vector<Transfer> transfer_;            // by op
  std::optional<ChannelModel> channel_;
  int64_t external_bytes_ = 0;
  std::vector<bool> external_value_;  // by value
  // Side effects on externals that an op reads: they happen at the first run only.
  std::vector<std::vector<Update>> effects_;  // by op
  bool has_effects_ = false;

  // Of the evaluation at work.
  NeededCopies copies_{0};          // live at this point
  std::vector<int32_t> first_run_;  // by op, if has_effects_
  std::vector<int64_t> resident_;   // by position
  std::vector<ReusePair> taken_;    // pairs of the op at work that do share
  struct Write {
    int32_t begins;    // after this position
    int32_t position;  // of the offload
  };
  std::vector<uint8_t> left_out_;  // by position: a needless transfer; where there is a channel
  std::vector<Write> writes_;
  std::vector<int64_t> written_ns_;  // by position of an offload: when it has ended
  std::vector<int32_t> touched_;     // by value: the last position that used or made it
  std::vector<int64_t> ready_ns_;    // by value: when its last copy has been read
};

}  // namespace remat
