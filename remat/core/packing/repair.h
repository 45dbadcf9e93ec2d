// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/packing/orders.h"
#include "remat/core/packing/packing.h"
#include "remat/core/packing/search.h"

namespace remat::detail {

inline constexpr int64_t kNotPlaced = -1;

// Finishes a packing of at most `height` in which some items, or all, do not lie yet (kNotPlaced);
// they come in the order given, each when the ones before it lie.
//
//     height ┬───────┬───────┐           x, two high, is still out. At offset 1 it drives out b, at
//            │   a   │       │           2 it drives out c: the cheaper one goes, and looks for a
//            ├───┬───┤   c   │   + x     place in its turn. Whoever was driven out often becomes
//            │   │ b │       │           dear, so that the same two do not take turns for ever.
//            └───┴───┴───────┘
//
// An item is dear by its size times its length, times how often it was driven out. A search that
// has not found better for a while goes on from the best so far. Good where there is some slack at
// most ticks, as in plans; perfect rectangles are for fit_exactly. Spends at most `nodes` of
// `budget`. Returns the offsets, kNotPlaced where no place was found in time.
std::vector<int64_t> repair_packing(const PackingProblem& problem, int64_t height,
                                    std::vector<int64_t> offset, const ItemOrder& order,
                                    SearchBudget& budget, int64_t nodes);

}  // namespace remat::detail
