// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/effort.h"
#include "remat/core/packing/orders.h"
#include "remat/core/packing/problem.h"

namespace remat::detail {

// Finishes a packing of at most `height` in which some items, or all, have no offset yet
// (kNotPlaced); they are placed in the order given, each when the ones before it have been.
//
//     height ┬───────┬───────┐
//            │   a   ├───────┤           x, two high, lives as long as c and has no offset. Wherever it
//            ├───┬───┤   c   │   + x     goes, it evicts c, which looks for a place in its turn: x ends
//            │   │ b ├───────┤           up at the bottom and c on top of it, or the other way round.
//            └───┴───┴───────┘
//
// Evicting an item costs its area times the number of its evictions, so that the search does not
// cycle. A search that has not found better for a while goes on from the best so far. Good where there
// is some slack at most ticks, as in plans; rectangles without any are for fit_exactly. Different seeds
// break ties differently. Returns the offsets, kNotPlaced for the items that found no place before the
// effort was exhausted.
Offsets pack_by_evictions(const PackingProblem& problem, int64_t height, Offsets start,
                          const ItemOrder& order, Effort& effort, uint64_t seed = 0);

}  // namespace remat::detail
