// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/window_search.h"

#include <gtest/gtest.h>

#include <string>

#include "remat/core/effort.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/plan.h"
#include "tests/testing/brute_force.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/skip.h"
#include "tests/testing/small_case.h"

namespace remat {
namespace window_search_test {

constexpr double kAmpleSeconds = 60;  // not to be reached

// Its plans are right and its bound holds for every plan that keeps the order of first runs.
TEST(WindowSearch, IsBracketedByStateSearch) {
  if (!has_solver()) { REMAT_SKIP("built without HiGHS: there are no windows to solve"); }
  const uint64_t graphs = testing::property_graphs(60);
  int64_t cases = 0, best = 0, proven = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    const testing::SmallCase made = testing::small_case(seed);
    for (const int64_t budget : made.budgets) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budget));
      const StateSearchResult expected =
          testing::brute_force(made.graph, budget, Freedom::given_order);
      ASSERT_TRUE(expected.complete);
      Effort effort(kAmpleSeconds);
      const WindowSearchResult found =
          search_windows(made.graph, given_order(made.graph), budget, effort);
      ASSERT_FALSE(found.infeasible && expected.feasible);
      if (!found.order.empty()) {
        ASSERT_EQ(testing::plan_fault(made.graph, found.order, budget), "");
        ASSERT_TRUE(expected.feasible);
        ASSERT_GE(found.time_ns, expected.time_ns);
      }
      if (!expected.feasible) continue;
      ASSERT_LE(found.least_time_ns, expected.time_ns);
      if (expected.order.size() == made.graph.ops.size()) continue;
      ++cases;
      best += !found.order.empty() && found.time_ns == expected.time_ns;
      proven += found.least_time_ns == expected.time_ns;
    }
  }
  EXPECT_GT(cases, static_cast<int64_t>(graphs));
  EXPECT_GT(best, cases / 2) << best << " of " << cases;
  EXPECT_GT(proven, cases / 2) << proven << " of " << cases;
}

}  // namespace window_search_test
}  // namespace remat
