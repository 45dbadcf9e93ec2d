// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <random>

#include "remat/core/exact/bound.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/strategies/strategies.h"
#include "tests/testing/chain_graphs.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace floor_test {

// recompute_all's closed form: x, a gradient, two neighbours.
TEST(PlanForFloor, OfEqualLayersIsFour) {
  const Graph graph = testing::chain_graph(std::vector<testing::Layer>(30));
  Effort effort;
  EXPECT_EQ(plan_for_floor(graph, {}, effort).peak_bytes, 4'000);
}

// No construction is lower, no bound is higher, and the op that sets it is one at which so much is there.
TEST(PlanForFloor, IsTheLowestThatAnyConstructionReaches) {
  int64_t lower = 0;
  const uint64_t graphs = testing::property_graphs(100);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    Effort effort, others;
    const Plan lowest = plan_for_floor(graph, {}, effort);
    ASSERT_EQ(testing::plan_fault(graph, lowest, kNoBudget), "");
    ASSERT_TRUE(lowest.floor);
    EXPECT_EQ(lowest.floor->bytes, lowest.peak_bytes);
    EXPECT_GE(lowest.peak_bytes, lower_bound_peak_bytes(graph));
    int64_t constructed = plan_keep_all(graph, {}).peak_bytes;
    for (const Plan& other : {plan_recompute_all(graph, {}), plan_selective(graph, {}),
                              plan_every_k(graph, {}), plan_mutwo(graph, {.budget_bytes = 0}, others)}) {
      constructed = std::min(constructed, other.peak_bytes);
    }
    EXPECT_LE(lowest.peak_bytes, constructed);
    lower += lowest.peak_bytes < constructed ? 1 : 0;
    const Schedule schedule = rewrite(graph, lowest.order);
    const Peak peak = simulate_peak(graph, schedule);
    EXPECT_EQ(lowest.floor->op, schedule.steps[peak.step].op);
  }
  EXPECT_GT(lower, static_cast<int64_t>(graphs) / 4);
}

TEST(PlanForFloor, KeepsTheOrderWhereItMust) {
  for (uint64_t seed = 0; seed < testing::property_graphs(50); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    Effort effort;
    const Plan lowest = plan_for_floor(graph, {.keep_order = true}, effort);
    EXPECT_TRUE(keeps_order(graph, lowest.order)) << seed;
    EXPECT_FALSE(lowest.floor) << "that would be of another order";
  }
}

// What its searches do is counted, and they end with what pays for them.
TEST(PlanForFloor, EndsWithTheEffort) {
  std::mt19937_64 generator(4);
  testing::RandomGraphOptions shape;
  shape.forward_ops = 60;
  const Graph graph = testing::random_graph(generator, shape);
  Effort ample, none = Effort::of_work(0);
  plan_for_floor(graph, {}, ample);
  const Plan lowest = plan_for_floor(graph, {}, none);
  EXPECT_EQ(testing::plan_fault(graph, lowest, kNoBudget), "");
  EXPECT_LT(none.spent(), ample.spent() / 20);
}

}  // namespace floor_test
}  // namespace remat
