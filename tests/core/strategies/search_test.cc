// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "remat/core/strategies/strategies.h"
#include "tests/testing/chain_graphs.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace search_test {

// The search tries other orders first; here there is none, and it must notice.
TEST(Search, EndsOnAChainInWhichNoOpCanMove) {
  const Graph graph = testing::chain_graph(std::vector<testing::Layer>(100));
  const int64_t budget = (floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 2;
  const Plan made = plan(graph, {.budget_bytes = budget, .strategy = "search", .max_orders = 500});
  EXPECT_TRUE(made.feasible);
}

// Whatever is switched off, the rest makes right plans.
TEST(Search, IsRightWithoutAnyOfItsStages) {
  constexpr bool SearchStages::*kAll[] = {
      &SearchStages::constructions, &SearchStages::reorder, &SearchStages::lower_targets,
      &SearchStages::ruin,          &SearchStages::flatten, &SearchStages::second_start,
      &SearchStages::bound,         &SearchStages::windows,       &SearchStages::chain_dp,
      &SearchStages::early_updates, &SearchStages::insert_many,   &SearchStages::coarse_bound,
      &SearchStages::polish,        &SearchStages::packable};
  for (uint64_t seed = 0; seed < testing::property_graphs(6, 1); ++seed) {
    std::mt19937_64 generator(seed);
    testing::RandomGraphOptions shape;
    shape.forward_ops = 40;
    const Graph graph = testing::random_graph(generator, shape);
    const int64_t least = floor(graph).bytes;
    for (const int64_t budget : {least - 1, (3 * least + keep_all_baseline(graph).peak_bytes) / 4}) {
      for (const auto stage : kAll) {
        PlanOptions options{.budget_bytes = budget, .max_orders = 300};
        options.stages.*stage = false;
        EXPECT_EQ(testing::plan_fault(graph, plan(graph, options), budget), "") << seed;
      }
    }
  }
}

// Going on from a plan for a larger budget is a plan for this one, or says that it is none.
TEST(Search, GoesOnFromAPlanForMore) {
  int64_t reached = 0;
  const uint64_t graphs = testing::property_graphs(20, 4);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const int64_t least = floor(graph).bytes;
    const int64_t more = (least + keep_all_baseline(graph).peak_bytes) / 2;
    const PlanOptions options{.budget_bytes = (least + more) / 2, .max_orders = 300};
    const Plan before = plan(graph, {.budget_bytes = more, .strategy = "search", .max_orders = 300});
    Effort effort;
    const Plan after = continue_search(graph, options, before.order, effort);
    EXPECT_EQ(testing::plan_fault(graph, after, options.budget_bytes), "") << seed;
    reached += after.feasible ? 1 : 0;
    EXPECT_GT(effort.spent(), 0);
  }
  EXPECT_GT(reached, static_cast<int64_t>(graphs) / 2);
}

}  // namespace search_test
}  // namespace remat
