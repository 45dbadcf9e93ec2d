// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/packing/budget.h"
#include "remat/core/packing/problem.h"

namespace remat::detail {

// One direction of time as seen from the fullest tick, the peak: ticks are distances from it. An item
// of several parts is treated as if it had its largest size all the time.
struct BeamSide {
  struct Life {
    int64_t size = 0;
    int32_t start = 0;  // 0 or less if the item is alive at the peak
    int32_t end = 0;
    double until = 0;  // the end, in weights of ticks
    bool at_peak() const { return start <= 0 && end >= 0; }
  };

  BeamSide(const PackingProblem& problem, int64_t height, bool backwards);

  int64_t height;
  std::vector<Life> life;                      // by item
  std::vector<std::vector<int32_t>> starting;  // by distance from the peak, the largest first
  // By distance from the peak: the sum of the weights of the ticks before it. A tick weighs more the
  // fuller it is.
  std::vector<double> weight_before;
};

// Places the items that start beyond the peak, tick by tick, each into a gap between those that are
// alive then; `offsets` has the items alive at the peak. Large items find room if gaps are few, now
// and later. Let `until`, by offset, be the tick up to which the offset is taken: the sum of its
// changes over the height is twice the number of gaps of all ticks to come.
//
//     height ┬──────────┐                until, from the bottom up: 6, 3, 9. The changes are
//            │    c     │ 9              |6-3| + |3-9| = 9, and those at both walls.
//            ├────┬─────┘
//            │ b  │ 3                    After tick 3 there is one gap between a and c: an item that
//            ├────┴──┐                   ends at 6 or 9 fills it without a change more.
//            │   a   │ 6
//            └───────┴──▶ distance from the peak
//
// A beam of the states with the least sums is kept.
void fill_side(const BeamSide& side, Offsets& offsets, SearchBudget& budget);

}  // namespace remat::detail
