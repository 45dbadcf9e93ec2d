// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "remat/core/strategies/strategies.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace auto_test {

// It starts from all of them, so that this holds by construction, on graphs too large to look at every plan.
TEST(Auto, LosesToNoOtherStrategy) {
  int64_t strictly = 0;
  for (uint64_t seed = 0; seed < testing::property_graphs(12, 2); ++seed) {
    std::mt19937_64 generator(seed);
    testing::RandomGraphOptions shape;
    shape.forward_ops = 45;
    const Graph graph = testing::random_graph(generator, shape);
    const int64_t budget = (floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 2;
    const auto planned = [&](std::string_view strategy) {
      return plan(graph, {.budget_bytes = budget,
                          .strategy = std::string(strategy),
                          .max_orders = 300});
    };
    const Plan best = planned("auto");
    EXPECT_EQ(testing::plan_fault(graph, best, budget), "") << seed;
    EXPECT_TRUE(best.feasible) << seed;
    for (const Strategy& strategy : strategies()) {
      const Plan other = planned(strategy.name);
      if (!other.feasible) continue;
      EXPECT_LE(best.time_ns, other.time_ns) << seed << " " << strategy.name;
      strictly += best.time_ns < other.time_ns ? 1 : 0;
    }
  }
  EXPECT_GT(strictly, 0);
}

TEST(Auto, CarriesTheNameOfWhatFoundThePlan) {
  std::mt19937_64 generator(1);
  const Graph graph = testing::random_graph(generator);
  Effort effort;
  EXPECT_EQ(plan_auto(graph, {}, effort).strategy, "keep_all");
  EXPECT_EQ(plan_optimal(graph, {}, effort).strategy, "optimal");
}

}  // namespace auto_test
}  // namespace remat
