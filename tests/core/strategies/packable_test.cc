// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/packable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "tests/testing/check_placement.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace packable_test {

std::vector<OpId> sorted(std::vector<OpId> order) {
  std::ranges::sort(order);
  return order;
}

Graph graph_of(uint64_t seed) {
  std::mt19937_64 generator(seed);
  return testing::random_graph(generator, {.forward_ops = 40});
}

PlanOptions options_for(const Graph& graph) {
  const int64_t most = keep_all_baseline(graph).peak_bytes;
  return {.budget_bytes = (floor(graph).bytes + most) / 2, .strategy = "mutwo"};
}

TEST(Packable, AnotherOrderOfTheSameRunsIsNoHigherAndOftenPacksWithoutWaste) {
  int wasteful = 0, mended = 0;
  const uint64_t graphs = testing::property_graphs(60);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = graph_of(seed);
    const PlanOptions options = options_for(graph);
    const Plan before = plan(graph, options);
    if (!before.feasible) continue;
    Plan after = before;
    Effort effort;
    make_packable(graph, options, effort, after);

    EXPECT_EQ(sorted(after.order), sorted(before.order));
    EXPECT_EQ(testing::plan_fault(graph, after, before.peak_bytes), "");
    EXPECT_EQ(after.time_ns, before.time_ns);
    if (after.placement) {
      EXPECT_EQ(after.placement->arena_bytes, after.placement->max_live_bytes);
    }

    Effort as_much = testing::search_nodes(150'000);
    const Placement first = place(graph, rewrite(graph, before.order), {}, as_much);
    if (first.arena_bytes == first.max_live_bytes) continue;
    ++wasteful;
    mended += after.placement ? 1 : 0;
  }
  RecordProperty("wasteful", wasteful);
  RecordProperty("mended", mended);
  EXPECT_GE(wasteful, static_cast<int>(graphs / 20));
  EXPECT_GE(mended, wasteful / 2);
}

TEST(Packable, WhatIsEnoughForTheBudgetIsEnoughForPlacedPlans) {
  for (uint64_t seed = 0; seed < testing::property_graphs(20); ++seed) {
    const Graph graph = graph_of(seed);
    PlanOptions options = options_for(graph);
    Plan made = plan(graph, options);
    options.placed = true;
    options.budget_bytes = 2 * made.peak_bytes;
    const std::vector<OpId> order = made.order;
    made.feasible = true;
    Effort effort;
    make_packable(graph, options, effort, made);
    EXPECT_EQ(made.order, order);
    EXPECT_EQ(testing::plan_fault(graph, made, options.budget_bytes), "");
    ASSERT_TRUE(made.placement);
    EXPECT_LE(graph.external_bytes() + made.placement->arena_bytes, options.budget_bytes);
  }
}

// What plan() returns went through make_packable: it is what has to pass verify, at every budget.
TEST(Packable, PlansOfASearchPassVerifyWithTheirAddresses) {
  uint64_t placed = 0;
  const uint64_t graphs = testing::property_graphs(12, 2);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = graph_of(seed);
    const int64_t least = floor(graph).bytes, most = keep_all_baseline(graph).peak_bytes;
    for (const int64_t budget_bytes : {least, (least + most) / 2, most}) {
      for (const bool with_addresses : {false, true}) {
        const Plan made = plan(graph, {.budget_bytes = budget_bytes,
                                       .strategy = "search",
                                       .placed = with_addresses,
                                       .time_limit_seconds = 0.05});
        // The live bytes may fit where no arena does: then a placed plan is not feasible.
        const bool no_arena = with_addresses && !made.feasible;
        EXPECT_EQ(no_arena ? testing::plan_fault(graph, made.order, made.peak_bytes)
                           : testing::plan_fault(graph, made, budget_bytes),
                  "");
        if (!made.placement) continue;
        ++placed;
        if (with_addresses) {
          EXPECT_LE(graph.external_bytes() + made.placement->arena_bytes, budget_bytes);
        }
      }
    }
  }
  EXPECT_GT(placed, graphs);
}

TEST(Packable, LeavesAloneWhatMustBeKeptOrDoesNotFit) {
  const Graph graph = graph_of(1);
  PlanOptions options = options_for(graph);
  const Plan before = plan(graph, options);
  Plan made = before;
  made.feasible = false;
  Effort effort;
  make_packable(graph, options, effort, made);
  EXPECT_EQ(made.order, before.order);
  EXPECT_FALSE(made.placement);
  options.keep_order = true;
  made.feasible = true;
  make_packable(graph, options, effort, made);
  EXPECT_EQ(made.order, before.order);
  EXPECT_FALSE(made.placement);
}

}  // namespace packable_test
}  // namespace remat
