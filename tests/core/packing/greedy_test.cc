// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/greedy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/testing/random_packing.h"

namespace remat {
namespace greedy_test {

using detail::Greedy;

// An activation that ends early, a gradient that stays, and what comes between them.
PackingProblem two_ends() {
  PackingProblem problem;
  problem.add({0, 1, 3});  // 0: activation
  problem.add({1, 3, 2});  // 1: stays
  problem.add({2, 2, 5});  // 2: needs one hole of 5 where the activation was
  return problem;
}

TEST(Greedy, FirstFitTakesTheLowestFreeOffset) {
  const PackingProblem problem = two_ends();
  Offsets offsets;
  EXPECT_EQ(Greedy(problem).first_fit({0, 1, 2}, 10, offsets), 3);
  EXPECT_EQ(offsets, (Offsets{0, 3, 5}));
}

// At 0..3 the activation, at 3..5 what stays: 5 more do not fit below 7.
TEST(Greedy, FirstFitStopsAtTheFirstThatDoesNotFit) {
  const PackingProblem problem = two_ends();
  Offsets offsets;
  EXPECT_EQ(Greedy(problem).first_fit({0, 1, 2}, 7, offsets), 2);
}

TEST(Greedy, FromBothEndsTheHoleStaysInOnePiece) {
  const PackingProblem problem = two_ends();
  Offsets offsets;
  EXPECT_EQ(Greedy(problem).from_both_ends({0, 1, 2}, 7, offsets), 0);
  EXPECT_EQ(offsets, (Offsets{0, 5, 0}));
}

TEST(Greedy, FromBothEndsLeavesOutWhatDoesNotFitAndSaysHowMuch) {
  const PackingProblem problem = two_ends();
  Offsets offsets;
  Greedy greedy(problem);
  EXPECT_EQ(greedy.from_both_ends({0, 1, 2}, 6, offsets), problem.area(2));
  EXPECT_EQ(offsets, (Offsets{0, 4, kNotPlaced}));
  greedy.complete({0, 1, 2}, offsets);
  EXPECT_EQ(offsets, (Offsets{0, 4, 6}));
}

TEST(Greedy, HoldsOnRandomProblems) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 generator(seed);
    const PackingProblem problem = testing::random_packing(generator, 40, 30, 100);
    const detail::ItemOrder order =
        detail::GreedyOrders(problem).sorted(detail::GreedyOrder::load_size);
    const int64_t least = problem.largest_load();
    Greedy greedy(problem);
    Offsets offsets;
    const bool all = greedy.from_both_ends(order, least, offsets) == 0;
    ASSERT_EQ(testing::partial_packing_fault(problem, offsets, least), "") << "seed " << seed;
    ASSERT_EQ(all, std::ranges::count(offsets, kNotPlaced) == 0) << "seed " << seed;
    greedy.complete(order, offsets);
    ASSERT_EQ(std::ranges::count(offsets, kNotPlaced), 0) << "seed " << seed;
    ASSERT_EQ(testing::partial_packing_fault(problem, offsets, 40 * 100), "") << "seed " << seed;
    ASSERT_EQ(greedy.first_fit(order, 40 * 100, offsets), order.size()) << "seed " << seed;
    ASSERT_EQ(testing::partial_packing_fault(problem, offsets, 40 * 100), "") << "seed " << seed;
  }
}

}  // namespace greedy_test
}  // namespace remat
