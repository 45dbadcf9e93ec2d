// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/search.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/testing/cut_rectangle.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace search_test {

using detail::FitResult;
using testing::search_nodes;

// The load is at most 6, but no packing is lower than 7: see packing_test.cc for the brute force.
PackingProblem needs_seven() {
  PackingProblem problem;
  for (const Part& part : {Part{0, 2, 3},
                           {1, 3, 3},
                           {3, 5, 1},
                           {3, 4, 1},
                           {4, 4, 2},
                           {4, 5, 2},
                           {5, 6, 3},
                           {6, 6, 3}}) {
    problem.add(part);
  }
  return problem;
}

TEST(FitExactly, ProvesThatThereIsNoPacking) {
  Effort effort = search_nodes(100'000);
  const FitResult fit = detail::fit_exactly(needs_seven(), 6, effort);
  EXPECT_FALSE(fit.offset);
  EXPECT_EQ(fit.lower_bound, 7);
}

TEST(FitExactly, FindsThePackingThatThereIs) {
  Effort effort = search_nodes(100'000);
  const FitResult fit = detail::fit_exactly(needs_seven(), 7, effort);
  ASSERT_TRUE(fit.offset);
  EXPECT_EQ(testing::partial_packing_fault(needs_seven(), *fit.offset, 7), "");
}

TEST(FitExactly, ProvesNothingWhenTheEffortEndsIt) {
  Effort effort = search_nodes(2);
  const FitResult fit = detail::fit_exactly(needs_seven(), 6, effort);
  EXPECT_FALSE(fit.offset);
  EXPECT_EQ(fit.lower_bound, 6);
}

TEST(FitExactly, HoldsOnRandomProblems) {
  int found = 0, proven = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 generator(seed);
    const PackingProblem problem = testing::random_packing(generator, 12, 10, 20);
    const int64_t height = problem.largest_load();
    Effort effort = search_nodes(20'000);
    const FitResult fit = detail::fit_exactly(problem, height, effort, seed);
    if (fit.offset) {
      ASSERT_EQ(testing::partial_packing_fault(problem, *fit.offset, height), "")
          << "seed " << seed;
    }
    found += fit.offset ? 1 : 0;
    proven += fit.lower_bound > height ? 1 : 0;
  }
  EXPECT_GT(found, 100);
  EXPECT_GT(proven, 0);
}

// A search that goes wrong at the bottom is lost; others are not. No more is spent than allowed.
TEST(FitWithRestarts, SpendsItsShareAndNoMore) {
  const PackingProblem hard = testing::cut_rectangle(testing::Cut::pinwheel, 500, 1);
  Effort effort = search_nodes(10'000);
  EXPECT_FALSE(detail::fit_with_restarts(hard, testing::kCutHeight, effort).offset);
  EXPECT_GE(effort.spent(), search_nodes(10'000).left());
  EXPECT_LT(effort.spent(), search_nodes(20'000).left());
}

TEST(FitWithRestarts, StopsAtAProof) {
  Effort effort = search_nodes(1'000'000);
  EXPECT_EQ(detail::fit_with_restarts(needs_seven(), 6, effort).lower_bound, 7);
  EXPECT_LT(effort.spent(), search_nodes(100'000).left());
}

}  // namespace search_test
}  // namespace remat
