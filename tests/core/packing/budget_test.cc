// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/budget.h"

#include <gtest/gtest.h>

#include <limits>

namespace remat {
namespace {

using detail::BudgetShare;
using detail::SearchBudget;

TEST(SearchBudget, IsSpentWhenItsNodesAre) {
  SearchBudget budget = SearchBudget::of(10, 3600);
  EXPECT_FALSE(budget.spent());
  budget.pay(9);
  EXPECT_EQ(budget.nodes_left, 1);
  budget.pay(5);
  EXPECT_TRUE(budget.spent());
}

TEST(SearchBudget, IsSpentOnceTheDeadlineIsOver) {
  SearchBudget late = SearchBudget::of(1'000'000, 0);
  late.pay(5'000);  // enough for a look at the clock
  EXPECT_TRUE(late.spent());
  SearchBudget never = SearchBudget::of(1'000'000, std::numeric_limits<double>::infinity());
  never.pay(5'000);
  EXPECT_EQ(never.nodes_left, 995'000);
}

TEST(BudgetShare, EndsBeforeTheBudgetAndWithIt) {
  SearchBudget budget = SearchBudget::of(100, 3600);
  const BudgetShare some(budget, 30), more_than_all(budget, 1000);
  budget.pay(20);
  EXPECT_EQ(some.nodes_left(), 10);
  EXPECT_FALSE(some.spent());
  budget.pay(20);
  EXPECT_EQ(some.nodes_left(), 0);
  EXPECT_TRUE(some.spent());
  EXPECT_FALSE(more_than_all.spent());
  budget.pay(60);
  EXPECT_TRUE(more_than_all.spent());
}

}  // namespace
}  // namespace remat
