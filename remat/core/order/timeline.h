// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/order/cost.h"

namespace remat {

// Where each value is made and used in one order: the questions a search asks before it moves.
//
//     position   0    1    2    3    4    5
//     a1         make      use            use        idle from 2 to 5: forgetting it after 2 and
//                                                    making it again before 5 frees 3 and 4
class OrderTimeline {
 public:
  using ValueIndex = OrderCost::ValueIndex;

  struct Event {
    int32_t position;
    bool makes;  // or uses
  };

  void build(const OrderCost& cost, std::span<const OpId> order);

  std::span<const Event> events(ValueIndex value) const {
    const size_t begin = static_cast<size_t>(start_[static_cast<size_t>(value)]);
    return {events_.data() + begin,
            static_cast<size_t>(start_[static_cast<size_t>(value) + 1]) - begin};
  }

  // The first event at or after the position; events(value).end() if there is none.
  std::span<const Event>::iterator next(ValueIndex value, size_t position) const;

  // Whether a copy is there just before the position, to be used at it or later.
  bool alive(ValueIndex value, size_t position) const;

 private:
  std::vector<int32_t> start_;  // by value, one more
  std::vector<int32_t> fill_;
  std::vector<Event> events_;
};

}  // namespace remat
