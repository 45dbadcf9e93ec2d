// SPDX-License-Identifier: Apache-2.0

// The least memory, on a chain of equal layers, whose peak and time can be worked out on paper.

#include <gtest/gtest.h>

#include "remat/core/strategies/strategies.h"
#include "tests/testing/chain_graphs.h"
#include "tests/testing/plan_fault.h"

namespace remat {
namespace recompute_all_test {

Graph equal_layers(int64_t n) {
  return testing::chain_graph(std::vector<testing::Layer>(static_cast<size_t>(n)));
}

// While a_(i-1) is made again for b_i: x, g_i and two neighbours of the chain; while b_i runs: x, g_i,
// a_(i-1), g_(i-1). 4 of 1000 bytes from n = 2 on; for n = 1 nothing is made again and b_1 needs x, g_1,
// g_0: 3. Re-runs of 10 ns: i-1 for each b_i (a_n is needed at once by the loss and never forgotten):
// n(n-1)/2.
TEST(RecomputeAll, KeepsNoActivation) {
  for (int64_t n = 1; n <= 64; ++n) {
    const Graph graph = equal_layers(n);
    const Plan made = plan_recompute_all(graph, {});
    EXPECT_EQ(testing::plan_fault(graph, made, kNoBudget), "") << n;
    EXPECT_EQ(made.peak_bytes, (n == 1 ? 3 : 4) * 1000) << n;
    EXPECT_EQ(made.time_ns - graph.total_time_ns(), n * (n - 1) / 2 * 10) << n;
  }
}

TEST(RecomputeAll, SaysOfEveryCandidateThatItIsRecomputed) {
  const Plan made = plan_recompute_all(equal_layers(5), {});
  EXPECT_EQ(made.decisions.size(), 4u);
  for (const Decision& decision : made.decisions) EXPECT_TRUE(decision.recomputed);
}

// 50 layers: 101 ops and 1225 re-runs.
TEST(RecomputeAll, BuildsNoOrderOfTooManyRuns) {
  const Graph graph = equal_layers(50);
  EXPECT_EQ(plan_recompute_all(graph, {.max_runs = 1'327}).order.size(), 1'326u);
  const Plan made = plan_recompute_all(graph, {.max_runs = 1'000});
  EXPECT_EQ(made.order, given_order(graph));
  EXPECT_EQ(made.strategy, "recompute_all");
  EXPECT_NE(made.note.find("more than 1000 runs"), std::string::npos);
}

}  // namespace recompute_all_test
}  // namespace remat
