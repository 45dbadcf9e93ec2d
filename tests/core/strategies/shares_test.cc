// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/shares.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "remat/core/order/cost.h"
#include "remat/core/rewrite.h"
#include "remat/core/strategies/strategies.h"
#include "remat/core/verify.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace shares_test {

// Too many ops to look at every plan; a budget for which something must be run again.
struct Case {
  Graph graph;
  PlanOptions options;
};
Case recomputing_case() {
  std::mt19937_64 generator(4);
  testing::RandomGraphOptions shape;
  shape.forward_ops = 40;
  Case made{.graph = testing::random_graph(generator, shape),
            .options = {.time_limit_seconds = 0.2}};
  made.options.budget_bytes =
      (floor(made.graph).bytes + keep_all_baseline(made.graph).peak_bytes) / 2;
  return made;
}

TEST(Shares, AreOfTheTimeLimit) {
  const Graph graph;
  EXPECT_EQ(work_share(graph, {.time_limit_seconds = 2}, 0.5), Effort::work_of_seconds(1));
  EXPECT_EQ(work_share(graph, {.time_limit_seconds = 0}, 0.5), 0);
}

TEST(Shares, LetTheSearchLookAtTheOrdersItIsGiven) {
  const Case made = recomputing_case();
  const int64_t order_work = OrderCost::kWorkPerOp * static_cast<int64_t>(made.graph.ops.size());
  EXPECT_EQ(work_share(made.graph, {.max_orders = 10}, kSearchShare), 10 * order_work);
}

TEST(Shares, EndWithTheCpuTimeOfTheWholePlan) {
  EXPECT_TRUE(effort_of_plan({.time_limit_seconds = 0}).out_of_cpu());
  EXPECT_FALSE(effort_of_plan({.time_limit_seconds = 100}).out_of_cpu());
  EXPECT_FALSE(effort_of_plan({.time_limit_seconds = 0, .max_orders = 1}).out_of_cpu());
}

// Everything is paid by the whole: the floor, the search, the bound.
TEST(Shares, ArePaidByTheWholePlan) {
  const Case made = recomputing_case();
  Effort floor_only;
  plan_for_floor(made.graph, {}, floor_only);
  EXPECT_GT(floor_only.spent(), 0);
  Effort local;
  plan_local_search(made.graph, made.options, local);
  EXPECT_GT(local.spent(), floor_only.spent());
}

// A machine that is far too slow: every stage ends at once, the floor's searches included, and what
// comes out is a right plan all the same.
TEST(Shares, EndEveryStageWhereTimeIsUp) {
  const Case made = recomputing_case();
  for (const Strategy& strategy : strategies()) {
    if (!strategy.searches) continue;
    Effort ample, over(0.0);
    strategy.plan(made.graph, made.options, ample);
    const Plan plan = strategy.plan(made.graph, made.options, over);
    EXPECT_LT(over.spent(), ample.spent() / 20) << strategy.name;
    const auto violation = verify(made.graph, rewrite(made.graph, plan.order), plan.peak_bytes);
    EXPECT_FALSE(violation) << strategy.name << ": " << violation->reason;
  }
}

TEST(Strategy, SaysWhetherItSearches) {
  std::set<std::string_view> searching;
  for (const Strategy& strategy : strategies()) {
    if (strategy.searches) searching.insert(strategy.name);
  }
  EXPECT_EQ(searching, (std::set<std::string_view>{"auto", "optimal", "search"}));
}

}  // namespace shares_test
}  // namespace remat
