// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/greedy.h"

#include <limits>

namespace remat::detail {

size_t Greedy::first_fit(const ItemOrder& order, int64_t height, Offsets& offsets) {
  occupancy_.clear();
  offsets.assign(order.size(), 0);
  for (size_t at = 0; at < order.size(); ++at) {
    const size_t item = static_cast<size_t>(order[at]);
    const int64_t highest = height - problem_.size(item);
    const int64_t offset = occupancy_.lowest_fit(problem_.parts(item), highest);
    if (offset > highest) return at;
    occupancy_.insert(problem_.parts(item), offset);
    offsets[item] = offset;
  }
  return order.size();
}

double Greedy::from_both_ends(const ItemOrder& order, int64_t height, Offsets& offsets) {
  occupancy_.clear();
  offsets.assign(order.size(), kNotPlaced);
  double left_out = 0;
  for (const int32_t number : order) {
    const size_t item = static_cast<size_t>(number);
    const auto parts = problem_.parts(item);
    const int64_t highest = height - problem_.size(item);
    const int64_t offset = problem_.stays(item) ? occupancy_.highest_fit(parts, highest)
                                                : occupancy_.lowest_fit(parts, highest);
    if (offset < 0 || offset > highest) {
      left_out += problem_.area(item);
      continue;
    }
    occupancy_.insert(parts, offset);
    offsets[item] = offset;
  }
  return left_out;
}

void Greedy::complete(const ItemOrder& order, Offsets& offsets) {
  occupancy_.clear();
  for (size_t item = 0; item < offsets.size(); ++item) {
    if (offsets[item] != kNotPlaced) occupancy_.insert(problem_.parts(item), offsets[item]);
  }
  for (const int32_t number : order) {
    const size_t item = static_cast<size_t>(number);
    if (offsets[item] != kNotPlaced) continue;
    offsets[item] =
        occupancy_.lowest_fit(problem_.parts(item), std::numeric_limits<int64_t>::max() / 2);
    occupancy_.insert(problem_.parts(item), offsets[item]);
  }
}

}  // namespace remat::detail
