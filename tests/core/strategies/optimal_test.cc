// SPDX-License-Identifier: Apache-2.0

// The exact planner against a reference that shares no code with it, and where no reference can follow.

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "remat/core/effort.h"
#include "remat/core/exact/bound.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "tests/testing/fastest_plan.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/skip.h"
#include "tests/testing/small_case.h"

namespace remat {
namespace optimal_test {

constexpr size_t kMostReferenceStates = 8'000;  // nine cases in ten are done by then

TEST(Optimal, EqualsAnIndependentReferenceAndSaysSo) {
  int64_t cases = 0, complete = 0, infeasible = 0, recomputing = 0;
  for (uint64_t seed = 0; seed < testing::property_graphs(40); ++seed) {
    const testing::SmallCase made = testing::small_case(seed);
    for (const int64_t budget : made.budgets) {
      for (const bool keep_order : {false, true}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budget) +
                     (keep_order ? ", given order" : ""));
        ++cases;
        const testing::FastestPlan expected = testing::fastest_plan(
            made.graph, budget, {.keep_order = keep_order, .most_states = kMostReferenceStates});
        if (!expected.complete) continue;
        ++complete;
        const Plan found = plan(
            made.graph, {.budget_bytes = budget, .strategy = "optimal", .keep_order = keep_order});
        ASSERT_EQ(testing::plan_fault(made.graph, found, budget), "");
        ASSERT_EQ(found.feasible, expected.time_ns.has_value());
        ASSERT_NE(found.note.find("proven"), std::string::npos) << found.note;
        infeasible += found.feasible ? 0 : 1;
        if (!found.feasible) {
          EXPECT_FALSE(found.lower_bound_time_ns);
          continue;
        }
        ASSERT_EQ(found.time_ns, *expected.time_ns);
        ASSERT_EQ(found.lower_bound_time_ns, found.time_ns);
        recomputing += found.order.size() > made.graph.ops.size() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(complete, cases * 8 / 10);
  EXPECT_GT(infeasible, cases / 20);
  EXPECT_GT(recomputing, cases / 4);
}

// Beyond exhaustive search: right, no slower than the others, not below its own bound.
TEST(Optimal, IsBestOnLargerGraphs) {
  testing::RandomGraphOptions shape;
  shape.forward_ops = 40;
  int64_t said_something = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator, shape);
    const Baseline keep_all = keep_all_baseline(graph);
    const int64_t budget = (floor(graph).bytes + keep_all.peak_bytes) / 2;
    const Plan others = plan(graph, {.budget_bytes = budget, .strategy = "mutwo"});
    for (const bool keep_order : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (keep_order ? ", given order" : ""));
      const Plan found = plan(graph, {.budget_bytes = budget,
                                      .strategy = "optimal",
                                      .keep_order = keep_order,
                                      .max_orders = 150'000});
      ASSERT_TRUE(found.feasible);
      EXPECT_EQ(testing::plan_fault(graph, found, budget), "");
      EXPECT_TRUE(!others.feasible || found.time_ns <= others.time_ns);
      ASSERT_TRUE(found.lower_bound_time_ns);
      EXPECT_LE(*found.lower_bound_time_ns, found.time_ns);
      EXPECT_FALSE(found.note.empty());
      said_something += *found.lower_bound_time_ns == found.time_ns ||
                                *found.lower_bound_time_ns > keep_all.time_ns
                            ? 1
                            : 0;
    }
  }
  // A bound that is no more than every op once says nothing of a plan that recomputes.
  if (has_solver()) {
    EXPECT_GE(said_something, 4);
  }
}

// make1 and make2 must not be re-run and do not fit together: use1 has to come between them, which in the
// given order it does not. It was said that nothing is faster in the given order.
TEST(Optimal, SaysWhereNothingFitsInTheGivenOrder) {
  if (!has_solver()) { REMAT_SKIP("built without HiGHS: there are no windows to solve"); }
  std::mt19937_64 generator(5);
  const Graph step = testing::random_graph(generator, {.forward_ops = 40});
  const int64_t budget = (floor(step).bytes + keep_all_baseline(step).peak_bytes) / 2;
  const std::string more_than_half = std::to_string((budget - step.external_bytes()) * 6 / 10);
  std::string text = print_graph(step);
  text.insert(text.find("output "),
              "op make1 optimizer kind=k time_ns=1 reads=x0 creates=big1:" + more_than_half + " once\n" +
              "op make2 optimizer kind=k time_ns=1 reads=x0 creates=big2:" + more_than_half + " once\n" +
              "op use1 optimizer kind=k time_ns=1 reads=big1 creates=c1:1\n" +
              "op use2 optimizer kind=k time_ns=1 reads=big2 creates=c2:1\n");
  const Graph graph = parse_graph(text);
  const Plan found =
      plan(graph, {.budget_bytes = budget, .strategy = "optimal", .max_orders = 50'000});
  ASSERT_TRUE(found.feasible);
  EXPECT_EQ(testing::plan_fault(graph, found, budget), "");
  EXPECT_EQ(found.note.find("no plan fits in the given order: proven"), 0u) << found.note;
}

// 8 + 8 + 8 kept at the turn would be 4 + 24; with 20, f1's result must be made again: 3 ns more.
TEST(Optimal, RecomputesTheCheapOne) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=3 reads=x creates=a:8
op f2 forward kind=k time_ns=50 reads=a creates=b:8
op f3 forward kind=k time_ns=5 reads=b creates=c:8
op b3 backward kind=k time_ns=5 reads=c,b creates=g:0
op b1 backward kind=k time_ns=5 reads=g,a creates=h:0
output h
)");
  EXPECT_EQ(keep_all_baseline(graph).peak_bytes, 28);
  EXPECT_EQ(lower_bound_peak_bytes(graph), 20);
  const Plan found = plan(graph, {.budget_bytes = 20, .strategy = "optimal"});
  EXPECT_TRUE(found.feasible);
  EXPECT_EQ(found.time_ns, 68 + 3);
  EXPECT_EQ(found.lower_bound_time_ns, 71);
  EXPECT_EQ(plan(graph, {.budget_bytes = 19, .strategy = "optimal"}).note,
            "no plan fits in any order: proven");
  Effort effort(60);
  EXPECT_EQ(lower_bound_time_ns(graph, 20, effort), has_solver() ? 71 : 68);
  EXPECT_FALSE(lower_bound_time_ns(graph, 19, effort));
}

}  // namespace optimal_test
}  // namespace remat
