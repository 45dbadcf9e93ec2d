// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/beam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/testing/random_packing.h"

namespace remat {
namespace {

using detail::BeamSide;
using testing::search_nodes;

// The picture in beam.h: c over b over a, all alive at the peak (tick 0), ending after 10, 4 and 7 ticks.
PackingProblem picture() {
  PackingProblem problem;
  problem.add({0, 6, 2});  // a
  problem.add({0, 3, 2});  // b
  problem.add({0, 9, 2});  // c
  return problem;
}

TEST(BeamSide, SeesTimeFromThePeak) {
  PackingProblem problem;
  problem.add({0, 2, 3});
  problem.add({2, 4, 3});  // the peak is tick 2
  problem.add({3, 4, 1});
  const BeamSide right(problem, 6, false), left(problem, 6, true);
  EXPECT_TRUE(right.life[0].at_peak());
  EXPECT_EQ(right.life[0].end, 0);
  EXPECT_EQ(left.life[0].end, 2);
  EXPECT_FALSE(right.life[2].at_peak());
  EXPECT_EQ(right.starting[1], std::vector<int32_t>{2});
  EXPECT_EQ(right.starting.size(), 3);
  EXPECT_LT(right.weight_before[2] - right.weight_before[1], right.weight_before[1]);  // less full
}

// d starts when b is gone: it fits between a and c, and nowhere else below 6.
TEST(Beam, FillsTheGapThatAnItemHasLeft) {
  PackingProblem problem = picture();
  problem.add({4, 6, 2});
  Offsets offsets{0, 2, 4, kNotPlaced};
  auto budget = search_nodes(10'000);
  fill_side(BeamSide(problem, 6, false), offsets, budget);
  EXPECT_EQ(offsets, (Offsets{0, 2, 4, 2}));
}

// Two items of 1 start one after the other in a gap of 3, and leave 1: at one end each they would part
// it, side by side they leave it in one piece for the third.
TEST(Beam, KeepsGapsInOnePiece) {
  PackingProblem problem;
  problem.add({0, 9, 1});
  problem.add({0, 0, 4});
  problem.add({1, 6, 1});
  problem.add({2, 6, 1});
  problem.add({3, 5, 2});
  Offsets offsets{0, 1, kNotPlaced, kNotPlaced, kNotPlaced};
  auto budget = search_nodes(10'000);
  fill_side(BeamSide(problem, 5, false), offsets, budget);
  EXPECT_EQ(testing::partial_packing_fault(problem, offsets, 5), "");
  EXPECT_EQ(std::ranges::count(offsets, kNotPlaced), 0);
}

TEST(Beam, LeavesOutWhatFitsNowhereAndGoesOn) {
  PackingProblem problem = picture();
  problem.add({4, 6, 3});  // three high, where two are free
  problem.add({5, 6, 1});
  Offsets offsets{0, 2, 4, kNotPlaced, kNotPlaced};
  auto budget = search_nodes(10'000);
  fill_side(BeamSide(problem, 6, false), offsets, budget);
  EXPECT_EQ(offsets[3], kNotPlaced);
  EXPECT_NE(offsets[4], kNotPlaced);
  EXPECT_LT(budget.nodes_left, 10'000);
}

}  // namespace
}  // namespace remat
