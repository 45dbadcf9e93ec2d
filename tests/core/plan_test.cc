// SPDX-License-Identifier: Apache-2.0
#include "remat/core/plan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/strategies/shares.h"
#include "remat/core/verify.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace plan_test {

// 200 bytes as a plain framework runs it; 100 where b takes the place of a.
Graph in_place_of_a() {
  return parse_graph(R"(remat-graph 1
external x 0 input
op f forward kind=k time_ns=10 reads=x creates=a:100
op relu forward kind=k time_ns=20 reads=a creates=b:100 reuse=b<a
output b
)");
}

std::string error_of(const PlanOptions& options) {
  try {
    plan(in_place_of_a(), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanVerb, AnUnknownStrategyIsAnErrorThatNamesAllThereAre) {
  const std::string message = error_of({.strategy = "best"});
  EXPECT_EQ(message.find("[plan] unknown strategy 'best'"), 0u) << message;
  for (const Strategy& strategy : strategies()) {
    EXPECT_NE(message.find(strategy.name), std::string::npos) << message;
  }
}

TEST(PlanVerb, ABudgetBelowZeroIsAnErrorAndOneOfZeroIsNot) {
  EXPECT_EQ(error_of({.budget_bytes = -1}).find("[plan] budget_bytes is -1"), 0u);
  EXPECT_EQ(error_of({.budget_bytes = 0}), "no error");
  EXPECT_FALSE(plan(in_place_of_a(), {.budget_bytes = 0}).feasible);
}

TEST(PlanVerb, AutoCarriesTheNameOfWhatWonAndOptimalItsOwn) {
  EXPECT_EQ(plan(in_place_of_a()).strategy, "keep_all");
  EXPECT_EQ(plan(in_place_of_a(), {.strategy = "optimal"}).strategy, "optimal");
}

// 100 bytes at an address that is a multiple of 64 take 128 of the arena.
TEST(PlanVerb, APlacedPlanFitsWithItsAddressesAndBringsThem) {
  const Plan placed = plan(in_place_of_a(), {.budget_bytes = 128, .placed = true});
  EXPECT_TRUE(placed.feasible);
  ASSERT_TRUE(placed.placement.has_value());
  EXPECT_EQ(placed.placement->arena_bytes, 128);
  EXPECT_TRUE(plan(in_place_of_a(), {.budget_bytes = 127}).feasible);
  EXPECT_FALSE(plan(in_place_of_a(), {.budget_bytes = 127, .placed = true}).feasible);
}

// README: a plan that takes more than four times its limit is ended. Here all that is done for one, its
// addresses included, takes far longer than that; what must be done before it can end is a few orders and
// greedy addresses.
TEST(PlanVerb, SpendsNoMoreThanFourTimesItsLimit) {
  std::mt19937_64 generator(4);
  testing::RandomGraphOptions shape;
  shape.forward_ops = 120;
  const Graph graph = testing::random_graph(generator, shape);
  const int64_t budget = (3 * floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 4;
  for (const char* strategy : {"auto", "search", "mutwo", "chain_dp"}) {
    const PlanOptions options{.budget_bytes = budget,
                              .strategy = strategy,
                              .placed = true,
                              .time_limit_seconds = 5e-3};
    Effort unlimited, limited = effort_of_plan(options);
    plan(graph, options, unlimited);
    const Plan made = plan(graph, options, limited);
    const int64_t most = 4 * Effort::work_of_seconds(options.time_limit_seconds);
    EXPECT_LE(limited.spent(), most + most / 4) << strategy;
    EXPECT_GT(unlimited.spent(), 2 * most) << strategy << " has nothing to end here";
    EXPECT_FALSE(verify(graph, rewrite(graph, made.order), made.peak_bytes)) << strategy;
  }
}

TEST(Strategies, AutoComesLastInTheTable) {
  EXPECT_EQ(strategies().front().name, "keep_all");
  EXPECT_EQ(strategies().back().name, "auto");
}

TEST(Baseline, IsTheGivenOrderWithoutReuse) {
  EXPECT_EQ(keep_all_baseline(in_place_of_a()).peak_bytes, 200);
  EXPECT_EQ(keep_all_baseline(in_place_of_a()).time_ns, 30);
  EXPECT_EQ(plan(in_place_of_a(), {.strategy = "keep_all"}).peak_bytes, 100);
}

TEST(FloorVerb, TakesThatOfThePlanWhereItHasOne) {
  const Graph graph = in_place_of_a();
  EXPECT_EQ(floor(graph).bytes, 100);
  Plan known;
  known.floor = Floor{.bytes = 7, .op = OpId{1}};
  EXPECT_EQ(floor(graph, known).bytes, 7);
  EXPECT_EQ(floor(graph, Plan{}).bytes, 100);
}

}  // namespace plan_test
}  // namespace remat
