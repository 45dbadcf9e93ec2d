// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/packing/occupancy.h"
#include "remat/core/packing/orders.h"
#include "remat/core/packing/problem.h"

namespace remat::detail {

// Places items one after the other and moves none again. What the caller chooses is the order.
class Greedy {
 public:
  explicit Greedy(const PackingProblem& problem)
      : problem_(problem), occupancy_(problem.tick_count()) {}

  // Each item at its lowest free offset. Stops at the first that does not fit below `height` and
  // returns its index in the order, or the number of items if all fit.
  size_t first_fit(const ItemOrder& order, int64_t height, Offsets& offsets);

  // Items that stay to the last tick at their highest free offset below `height`, the others at their
  // lowest: activations shrink and gradients grow with one hole between them.
  //
  //     height ┬         ┌───────┐
  //            │      ┌──┘ stay  │      from the top down
  //            │      └──────────┤
  //            │ ┌──┐            │      one hole
  //            ├─┘  └───┐        │
  //            │ others └────┐   │      from the bottom up
  //            └─────────────┴───┴▶ tick
  //
  // Leaves out what does not fit (kNotPlaced) and returns the area of it.
  double from_both_ends(const ItemOrder& order, int64_t height, Offsets& offsets);

  // Gives every item that has no offset yet its lowest free one, however high.
  void complete(const ItemOrder& order, Offsets& offsets);

 private:
  const PackingProblem& problem_;
  Occupancy occupancy_;
};

}  // namespace remat::detail
