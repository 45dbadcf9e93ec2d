// SPDX-License-Identifier: Apache-2.0
#include "remat/core/exact/linear_model.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/testing/skip.h"

namespace remat {
namespace linear_model_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Take what weighs at least 10 in all, of 6, 5 and 5 for 10, 7 and 7: two fives, for 14.
LinearModel knapsack() {
  LinearModel model;
  const Summand summands[] = {
      {model.add_binary(10), 6}, {model.add_binary(7), 5}, {model.add_binary(7), 5}};
  model.add_row(10, summands, kInfinity);
  return model;
}

TEST(LinearModel, FindsTheOptimumInWholeNumbers) {
  if (!has_solver()) { REMAT_SKIP("built without HiGHS"); }
  Effort effort;
  const Solution solution = knapsack().solve({}, effort);
  ASSERT_EQ(solution.status, Solution::Status::optimal);
  EXPECT_NEAR(solution.values[0], 0, 1e-6);
  EXPECT_NEAR(solution.values[1] + solution.values[2], 2, 1e-6);
  EXPECT_NEAR(solution.lower_bound, 14, 1e-4);
  EXPECT_GT(effort.spent(), 0);
}

TEST(LinearModel, SaysThatNothingFits) {
  if (!has_solver()) { REMAT_SKIP("built without HiGHS"); }
  LinearModel model = knapsack();
  const Summand summands[] = {{0, 6}, {1, 5}, {2, 5}};
  model.add_row(-kInfinity, summands, 9);
  Effort effort;
  EXPECT_EQ(model.solve({}, effort).status, Solution::Status::infeasible);
}

TEST(LinearModel, ClaimsNothingWithoutEffort) {
  Effort effort;
  Effort none = effort.part(0);
  const Solution solution = knapsack().solve({}, none);
  EXPECT_EQ(solution.status, Solution::Status::unknown);
  EXPECT_TRUE(solution.values.empty());
  EXPECT_EQ(solution.lower_bound, -kInfinity);
  EXPECT_EQ(effort.spent(), 0);
}

}  // namespace linear_model_test
}  // namespace remat
