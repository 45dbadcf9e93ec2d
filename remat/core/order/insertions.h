// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/order/context.h"
#include "remat/core/order/profile.h"
#include "remat/core/order/timeline.h"

namespace remat {

// Ops that make a value again before a position, so that it need not stay until then; or moves that
// pack or offload it and bring it back.
struct Insertion {
  OrderCost::ValueIndex target = 0;
  size_t before = 0;  // position
  std::vector<OpId> block;
  std::optional<OpId> reader;   // stands in place of the op at `before`: it reads packed bytes
  std::optional<OpId> leaving;  // pack or offload, ...
  size_t leaving_before = 0;    // ... and the position before which it stands
  int64_t time_ns = 0;   // that it takes
  int64_t price_ns = 0;  // what it counts for beyond that: transfers take the channel from others
  double gain = 0;       // estimate of the overflow removed, summed over positions
  bool in_time = false;  // transfers are to be put where no op waits for them
};

// How much overflow is removed for the time that it takes.
double ratio(double gain, int64_t time_ns);

// The order with all of them made, each at its places in the order as it was.
std::vector<OpId> with_insertions(const std::vector<OpId>& order,
                                  std::span<const Insertion> insertions);

// Insertions into one order that look worth a try. At a position every value that lies idle there could
// be forgotten and made again before its next use.
class InsertionFinder {
 public:
  explicit InsertionFinder(SearchContext& context);

  // The order that the questions are about, which was evaluated last. It must not change meanwhile.
  void look_at(const std::vector<OpId>& order, Effort& effort);
  const ExcessProfile& profile() const { return profile_; }

  // At most `most` for values idle at the position, the best ratio first; none that runs `tabu` again.
  std::vector<Insertion> at(size_t position, size_t most, std::optional<OpId> tabu, Effort& effort);

 private:
  using ValueIndex = OrderCost::ValueIndex;

  // A value that lies idle across a position, and a place where it could be made again.
  struct Spot {
    ValueIndex target = 0;
    size_t before = 0;      // position
    double gain = 0;        // as in Insertion
    double most_ratio = 0;  // of that to the time of the op that makes it
  };
  // A value's inputs may be gone at the place where it is made again. Which of them are kept until then
  // instead of being made again too:
  enum class Staying : uint8_t {
    none,           // everything is made again
    where_it_fits,  // what stays exceeds the budget nowhere
    if_smaller,     // or is less, together, than the value that is forgotten
  };

  void add_moves(ValueIndex value, size_t from, size_t use, std::vector<Insertion>& moves);
  void add_transfers(ValueIndex value, size_t from, size_t use, std::vector<Insertion>& moves);
  // Values that lie idle at the position, to be made again; and the moves that they have.
  std::vector<Spot> spots_at(size_t position, std::vector<Insertion>& moves, Effort& effort);
  void find_places(ValueIndex value, size_t position, size_t use);
  std::optional<OpId> brought_back_by(ValueIndex value, size_t before) const;
  bool collect_block(Staying staying, double to_beat, Insertion& insertion, Effort& effort);
  bool is_there(ValueIndex value, size_t before) const;
  bool fits_longer(ValueIndex value, size_t before) const;

  SearchContext& context_;
  OrderCost& cost_;
  const std::vector<OpId>* order_ = nullptr;
  OrderTimeline timeline_;
  ExcessProfile profile_;
  std::vector<int64_t> begin_ns_;  // by position, one more; where there is a channel
  // Scratch.
  std::vector<size_t> places_;     // where the value at work could be made again
  std::vector<int32_t> in_block_;  // by op: the stamp of the block that it was last in
  int32_t stamp_ = 0;
  std::vector<std::pair<ValueIndex, bool>> wanted_;  // and whether it must be a fresh copy
};

}  // namespace remat
