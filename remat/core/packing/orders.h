// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/packing/problem.h"

namespace remat::detail {

using ItemOrder = std::vector<int32_t>;

// The orders in which items are placed. For the load-based ones an item is as urgent as the largest
// load of its life: where there is room to spare, it can wait.
enum class GreedyOrder : uint8_t {
  load_length,  // largest load, then longest life
  load_size,    // largest load, then largest size
  size_start,   // largest size, then earliest start: optimal if all sizes are equal
  load_area,    // largest load, then largest area
  peak_length,  // outwards in time from the peak, long lives first
  peak_last,    // outwards from the peak, late ends first: stacks that shrink
  peak_first,   // outwards from the peak, early starts first: stacks that grow
  peak_size,    // outwards from the peak, large sizes first
  start,        // forwards in time
  end,          // backwards in time
  area,         // largest area
  length,       // longest life
  peak_inside,  // outwards from the peak; of those there at the peak the longest on both sides first
};

// The orders worth trying with first fit, most promising first. For a problem with many items, those
// that leave many small holes are left out, since they make `Occupancy` slow.
std::span<const GreedyOrder> first_fit_orders(size_t item_count);

class GreedyOrders {
 public:
  explicit GreedyOrders(const PackingProblem& problem);
  ItemOrder sorted(GreedyOrder by) const;

 private:
  struct Traits {
    int64_t size = 0;
    int64_t length = 0;  // ticks
    double area = 0;
    int64_t first = 0;
    int64_t last = 0;
    int64_t load = 0;           // the largest during its life
    int64_t peak_distance = 0;  // ticks between its life and the peak; 0 if it is there then
    int64_t peak_margin = 0;    // ticks of its life on both sides of the peak
  };

  template <typename Key>
  ItemOrder sorted_by(const Key& key) const;

  std::vector<Traits> traits_;  // by item
};

}  // namespace remat::detail
