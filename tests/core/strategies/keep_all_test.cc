// SPDX-License-Identifier: Apache-2.0

// The baseline, on a chain of equal layers, whose peak and time can be worked out on paper.

#include <gtest/gtest.h>

#include "remat/core/strategies/strategies.h"
#include "tests/testing/chain_graphs.h"
#include "tests/testing/plan_fault.h"

namespace remat {
namespace keep_all_test {

// At `loss` and at b_n: x, the n-1 or n activations, and two or one gradients: n + 2 of 1000 bytes.
TEST(KeepAll, RunsEveryOpOnceAsGiven) {
  for (int64_t n = 1; n <= 64; ++n) {
    const Graph graph = testing::chain_graph(std::vector<testing::Layer>(static_cast<size_t>(n)));
    const Plan made = plan_keep_all(graph, {});
    EXPECT_EQ(testing::plan_fault(graph, made, kNoBudget), "") << n;
    EXPECT_EQ(made.order, given_order(graph)) << n;
    EXPECT_EQ(made.peak_bytes, (n + 2) * 1000) << n;
    EXPECT_EQ(made.time_ns, graph.total_time_ns()) << n;
  }
}

TEST(KeepAll, SaysWhetherItFits) {
  const Graph graph = testing::chain_graph(std::vector<testing::Layer>(5));
  EXPECT_TRUE(plan_keep_all(graph, {.budget_bytes = 7000}).feasible);
  EXPECT_FALSE(plan_keep_all(graph, {.budget_bytes = 6999}).feasible);
}

TEST(KeepAll, StandsInForAnotherStrategyUnderItsName) {
  const Graph graph = testing::chain_graph(std::vector<testing::Layer>(5));
  const Plan made = keep_all_instead(graph, {.budget_bytes = 100}, "chain_dp", "there is no chain");
  EXPECT_EQ(made.order, given_order(graph));
  EXPECT_EQ(made.strategy, "chain_dp");
  EXPECT_EQ(made.note, "there is no chain");
  EXPECT_FALSE(made.feasible);
}

}  // namespace keep_all_test
}  // namespace remat
