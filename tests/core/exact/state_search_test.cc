// SPDX-License-Identifier: Apache-2.0

// The exact search on small random graphs with every feature of the format.

#include "remat/core/exact/state_search.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "remat/core/effort.h"
#include "remat/core/plan.h"
#include "remat/core/strategies/strategies.h"
#include "tests/testing/brute_force.h"
#include "tests/testing/fastest_plan.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/small_case.h"

namespace remat {
namespace state_search_test {

constexpr size_t kMostReferenceStates = 8'000;  // nine cases in ten are done by then

// Dijkstra's algorithm, which shares no code and passes nothing over, finds the same least time.
TEST(StateSearch, EqualsAnIndependentReference) {
  int64_t cases = 0, complete = 0, infeasible = 0, recomputing = 0;
  for (uint64_t seed = 0; seed < testing::property_graphs(60); ++seed) {
    const testing::SmallCase made = testing::small_case(seed);
    for (const int64_t budget : made.budgets) {
      for (const bool keep_order : {false, true}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budget) +
                     (keep_order ? ", given order" : ""));
        ++cases;
        const testing::FastestPlan expected = testing::fastest_plan(
            made.graph, budget, {.keep_order = keep_order, .most_states = kMostReferenceStates});
        if (!expected.complete) continue;
        const StateSearchResult found = testing::brute_force(
            made.graph, budget, keep_order ? Freedom::given_order : Freedom::any_order);
        ASSERT_TRUE(found.complete);
        ASSERT_EQ(found.feasible, expected.time_ns.has_value());
        ++complete;
        infeasible += found.feasible ? 0 : 1;
        if (!found.feasible) continue;
        ASSERT_EQ(found.time_ns, *expected.time_ns);
        recomputing += found.order.size() > made.graph.ops.size() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(complete, cases * 8 / 10);
  EXPECT_GT(infeasible, cases / 20);
  EXPECT_GT(recomputing, cases / 4);
}

// A search that gives up has proven something too.
TEST(StateSearch, NeverClaimsMoreThanTheOptimum) {
  int claims = 0;
  for (uint64_t seed = 0; seed < testing::property_graphs(100); ++seed) {
    const testing::SmallCase made = testing::small_case(seed);
    for (const int64_t budget : made.budgets) {
      const StateSearchResult all = testing::brute_force(made.graph, budget);
      if (!all.complete || !all.feasible) continue;
      const int64_t optimum = all.time_ns - keep_all_baseline(made.graph).time_ns;
      Effort effort;
      ASSERT_EQ(all.least_extra_ns, optimum) << "seed " << seed;
      for (const double seconds : {3e-6, 3e-5, 3e-4, 3e-3}) {
        Effort too_little = Effort::of_work(Effort::work_of_seconds(seconds));
        const StateSearchResult some = search_states(made.graph, budget, too_little);
        ASSERT_LE(some.least_extra_ns, optimum) << "seed " << seed << ", " << seconds << " s";
        claims += !some.complete && some.least_extra_ns > 0;
      }
      const StateSearchResult enough =
          search_states(made.graph, budget, effort, {.enough_extra_ns = optimum / 2});
      ASSERT_GE(enough.least_extra_ns, optimum / 2) << "seed " << seed;
      ASSERT_LE(enough.least_extra_ns, optimum) << "seed " << seed;
    }
  }
  EXPECT_GT(claims, 5);
}

// What it finds is a right plan of just that time, and more freedom is never slower.
TEST(StateSearch, PlansAreRight) {
  for (uint64_t seed = 0; seed < testing::property_graphs(100); ++seed) {
    const testing::SmallCase made = testing::small_case(seed);
    for (const int64_t budget : made.budgets) {
      int64_t previous = std::numeric_limits<int64_t>::max();
      for (const Freedom freedom : {Freedom::given_order, Freedom::any_order}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budget) +
                     ", freedom " + std::to_string(static_cast<int>(freedom)));
        const StateSearchResult found = testing::brute_force(made.graph, budget, freedom);
        ASSERT_TRUE(found.complete);
        if (!found.feasible) {
          EXPECT_EQ(previous, std::numeric_limits<int64_t>::max());
          continue;
        }
        EXPECT_EQ(testing::plan_fault(made.graph, found.order, budget), "");
        EXPECT_EQ(make_plan(made.graph, "", found.order, budget).time_ns, found.time_ns);
        EXPECT_LE(found.time_ns, previous);
        previous = found.time_ns;
      }
    }
  }
}

}  // namespace state_search_test
}  // namespace remat
