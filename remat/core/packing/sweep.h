// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "remat/core/packing/packing.h"
#include "remat/core/packing/search.h"

namespace remat::detail {

// Packs from the fullest tick outwards. What is there is stacked without a hole; from then on the
// two sides have nothing to do with each other, and on each of them the items come tick by tick,
// away from the peak, each into a gap of what lies there already:
//
//     height ┬   ┌────────────┐         a and b cross the peak. To the right, c comes when a is
//            │   │     a      ├───┐     gone and lies in the gap that a has left.
//            │   ├────────────┤ c │
//            │ ┌─┴─────b──────┴───┴─┐
//            └─┴────────┬───────────┴──
//                      peak
//
// Large items find room if gaps are few, now and later. Let `until`, by offset, be the tick up to
// which the offset is taken: the sum of its changes over the height is twice the number of gaps of
// all ticks to come. That sum is made small: of the stacks at the peak one with small sums for both
// sides is looked for by annealing, and a beam of the best states is kept on the way out. Ticks count
// more the fuller they are.
//
// An item of several parts is treated as if it had its largest size all the time.
class Sweep {
 public:
  Sweep(const PackingProblem& problem, int64_t height);
  ~Sweep();

  // Another stack, and what comes of it: offsets, kNotPlaced for what fitted into none of the states
  // at its turn. Costs about the items, times those there at the peak, times the beam.
  std::vector<int64_t> next(SearchBudget& budget);

  double area_left_out(const std::vector<int64_t>& offset) const;  // size times length, summed up

 private:
  struct Sides;

  void anneal(std::vector<int32_t>& stack, double heat);

  const PackingProblem& problem_;
  int64_t height_;
  std::vector<int64_t> size_;  // by item: the largest of its parts
  std::unique_ptr<Sides> sides_;
  int64_t free_at_peak_ = 0;
  std::vector<int32_t> best_stack_;  // items, from the bottom up
  double least_left_out_ = std::numeric_limits<double>::infinity();
  int64_t rounds_ = 0;
  std::mt19937_64 random_;  // with its fixed first state: the same packings every time
};

}  // namespace remat::detail
