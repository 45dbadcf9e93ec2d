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

// Ops that make a value again before a position, so that it need not stay until then.
struct Insertion {
  OrderCost::ValueIndex target = 0;
  size_t before = 0;  // position
  std::vector<OpId> block;
  int64_t time_ns = 0;  // of the block
  double gain = 0;      // estimate of the overflow removed, summed over positions
};

// How much overflow is removed for the time that it takes.
double ratio(double gain, int64_t time_ns);

// The order with blocks inserted. The insertions must stand in the order of their places.
std::vector<OpId> with_insertions(const std::vector<OpId>& order,
                                  std::span<const Insertion> insertions);

// Insertions into one order that look worth a try. At a position every value that lies idle there could
// be forgotten and made again before its next use.
class InsertionFinder {
 public:
  explicit InsertionFinder(const SearchContext& context);

  // The order that the questions are about. Its bytes are those evaluated last.
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
  // What a value is made from and is no longer there at that place could have stayed.
  enum class Staying : uint8_t {
    none,           // everything is made again
    where_it_fits,  // what stays exceeds the budget nowhere
    if_smaller,     // or is less, together, than the value that is forgotten
  };

  std::vector<Spot> spots_at(size_t position, Effort& effort);
  void find_places(ValueIndex value, size_t position, size_t use);
  bool collect_block(Staying staying, double to_beat, Insertion& insertion, Effort& effort);
  bool is_there(ValueIndex value, size_t before) const;
  bool fits_longer(ValueIndex value, size_t before) const;

  const SearchContext& context_;
  const OrderCost& cost_;
  OrderTimeline timeline_;
  ExcessProfile profile_;
  // Scratch.
  std::vector<size_t> places_;     // where the value at work could be made again
  std::vector<int32_t> in_block_;  // by op: the stamp of the block that it was last in
  int32_t stamp_ = 0;
  std::vector<std::pair<ValueIndex, bool>> wanted_;  // and whether it must be a fresh copy
};

}  // namespace remat
