// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/testing/cut_rectangle.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace {

using detail::SearchBudget;
using detail::Sweep;
using testing::search_nodes;

// A step of n layers: activation k lives from tick k to its use on the way back, and at every tick
// but the peak there is a workspace as large as all that is free there: gaps must be in one piece.
TEST(PackingSweep, KeepsGapsInOnePiece) {
  constexpr int32_t kLayers = 12;
  PackingProblem problem;
  for (int32_t k = 0; k < kLayers; ++k) problem.add({k, 2 * kLayers - 2 - k, 10 + k});
  const int64_t height = problem.largest_load();
  const std::vector<int64_t> load = problem.load();
  for (int32_t t = 0; t < problem.tick_count(); ++t) {
    const int64_t free = height - load[static_cast<size_t>(t)];
    if (free > 0) problem.add({t, t, free});
  }
  SearchBudget budget = search_nodes(1'000'000);
  const std::vector<int64_t> offset = Sweep(problem, height).next(budget);
  EXPECT_EQ(testing::partial_packing_fault(problem, offset, height), "");
  EXPECT_EQ(std::ranges::count(offset, kNotPlaced), 0);
}

TEST(PackingSweep, HoldsOnRandomProblems) {
  int incomplete = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 generator(seed);
    const PackingProblem problem = testing::random_packing(generator, 40, 30, 100);
    const int64_t least = problem.largest_load();
    for (const int64_t height : {least, least + least / 10}) {
      SearchBudget budget = search_nodes(1'000'000);
      Sweep sweep(problem, height);
      for (int round = 0; round < 3; ++round) {
        const std::vector<int64_t> offset = sweep.next(budget);
        ASSERT_EQ(testing::partial_packing_fault(problem, offset, height), "") << "seed " << seed;
        const bool complete = std::ranges::count(offset, kNotPlaced) == 0;
        ASSERT_EQ(complete, sweep.area_left_out(offset) == 0) << "seed " << seed;
        incomplete += complete ? 0 : 1;
      }
    }
  }
  EXPECT_GT(incomplete, 0) << "the problems are too easy to say anything";
}

TEST(PackingSweep, EndsWhenTheBudgetDoes) {
  const PackingProblem problem = testing::cut_rectangle(testing::Cut::guillotine, 300, 1);
  SearchBudget budget = search_nodes(100);
  const std::vector<int64_t> offset = Sweep(problem, testing::kCutHeight).next(budget);
  EXPECT_EQ(testing::partial_packing_fault(problem, offset, testing::kCutHeight), "");
  EXPECT_GT(std::ranges::count(offset, kNotPlaced), 0);
}

TEST(PackingSweep, SameProblemSamePackings) {
  const PackingProblem problem = testing::cut_rectangle(testing::Cut::pinwheel, 100, 2);
  SearchBudget budget = search_nodes(10'000'000), other = budget;
  Sweep once(problem, testing::kCutHeight), again(problem, testing::kCutHeight);
  for (int round = 0; round < 4; ++round) EXPECT_EQ(once.next(budget), again.next(other));
  EXPECT_EQ(budget.nodes_left, other.nodes_left);
}

}  // namespace
}  // namespace remat
