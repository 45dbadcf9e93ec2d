// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/repair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/testing/random_graph.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace {

using detail::ItemOrder;
using detail::SearchBudget;
using testing::search_nodes;

ItemOrder as_they_come(const PackingProblem& problem) {
  ItemOrder order(problem.item_count());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The picture in repair.h: a over b, c beside them in the middle, and x, which needs two of the four rows
// as long as c lives.
TEST(PackingRepair, EvictsWhatIsInTheWay) {
  PackingProblem problem;
  problem.add({0, 1, 2});  // a
  problem.add({1, 1, 1});  // b, at the bottom
  problem.add({2, 3, 2});  // c, in the middle: x fits nowhere
  problem.add({2, 3, 2});  // x
  SearchBudget budget = search_nodes(10'000);
  const std::vector<int64_t> offset = detail::repair_packing(problem, 4, {2, 0, 1, kNotPlaced},
                                                             as_they_come(problem), budget, 10'000);
  EXPECT_EQ(testing::partial_packing_fault(problem, offset, 4), "");
  EXPECT_EQ(std::ranges::count(offset, kNotPlaced), 0);
  EXPECT_EQ(offset[0], 2);  // these two overlap neither c nor x
  EXPECT_EQ(offset[1], 0);
}

TEST(PackingRepair, WithoutNodesNothingMoves) {
  PackingProblem problem;
  problem.add({0, 3, 2});
  problem.add({0, 3, 2});
  SearchBudget budget = search_nodes(0);
  const std::vector<int64_t> start = {1, kNotPlaced};
  EXPECT_EQ(detail::repair_packing(problem, 4, start, as_they_come(problem), budget, 100), start);
}

// Whatever the height allows, what lies does not overlap; with the sum of all sizes everything does.
TEST(PackingRepair, HoldsOnRandomProblems) {
  int incomplete = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 generator(seed);
    const PackingProblem problem = testing::random_packing(generator, 40, 30, 100);
    const std::vector<int64_t> nothing(problem.item_count(), kNotPlaced);
    for (const int64_t height : {problem.largest_load(), int64_t{40 * 100}}) {
      SearchBudget budget = search_nodes(2'000);
      const std::vector<int64_t> offset =
          detail::repair_packing(problem, height, nothing, as_they_come(problem), budget, 2'000);
      ASSERT_EQ(testing::partial_packing_fault(problem, offset, height), "") << "seed " << seed;
      const bool complete = std::ranges::count(offset, kNotPlaced) == 0;
      if (height == 40 * 100) {
        ASSERT_TRUE(complete) << "seed " << seed;
      }
      incomplete += complete ? 0 : 1;
    }
  }
  EXPECT_GT(incomplete, 0) << "the problems are too easy to say anything";
}

}  // namespace
}  // namespace remat
