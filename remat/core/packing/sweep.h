// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "remat/core/packing/beam.h"
#include "remat/core/packing/budget.h"
#include "remat/core/packing/problem.h"

namespace remat::detail {

// Packs from the fullest tick, the peak, outwards. The items alive there are stacked without a hole;
// from then on the two sides are independent, and on each of them the items come tick by tick, away
// from the peak, each into a gap of what is placed already (beam.h):
//
//     height ┬   ┌────────────┐
//            │   │     a      ├───┐     a and b cross the peak. To the right, c comes when a is
//            │   ├────────────┤ c │     gone and is placed in the gap that a has left.
//            │ ┌─┴─────b──────┴───┴─┐
//            └─┴────────┬───────────┴──
//                      peak
//
// Of the stacks at the peak, one that leaves few gaps on both sides is looked for by annealing.
class Sweep {
 public:
  Sweep(const PackingProblem& problem, int64_t height);

  // Another stack, and what comes of it: offsets, kNotPlaced for items that fitted into none of the
  // beam's states at their turn. Costs about the items, times those alive at the peak, times the beam.
  Offsets next(SearchBudget& budget);

  double area_left_out(const Offsets& offsets) const;

 private:
  void anneal(std::vector<int32_t>& stack, double heat);

  const PackingProblem& problem_;
  int64_t height_;
  BeamSide right_;
  BeamSide left_;
  int64_t free_at_peak_ = 0;
  std::vector<int32_t> best_stack_;  // items, from the bottom up
  double least_left_out_ = std::numeric_limits<double>::infinity();
  int64_t rounds_ = 0;
  std::mt19937_64 random_;  // with its fixed first state: the same packings every time
};

}  // namespace remat::detail
