// SPDX-License-Identifier: Apache-2.0

// What every strategy owes its caller, on random graphs with all features mixed.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "remat/core/plan.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"

namespace remat {
namespace strategies_test {

testing::RandomGraphOptions shape_of(std::mt19937_64& generator) {
  testing::RandomGraphOptions options;
  options.forward_ops = static_cast<int>(testing::draw(generator, 1, 24));
  options.optimizer_phase = testing::chance(generator, 0.5);
  if (testing::chance(generator, 0.2)) options.update_rate = 0.5;
  return options;
}

// Searches and exact methods take their time, and each has tests of its own beside this one: they are
// tried on every so-manieth graph. Odd, so that they see graphs with and without keep_order.
uint64_t one_in(std::string_view strategy) {
  if (strategy == "optimal" || strategy == "auto") return 15;
  return strategy == "search" || strategy == "chain_dp" ? 5 : 1;
}

TEST(Strategies, KeepTheirPromiseOnRandomGraphs) {
  const uint64_t graphs = testing::property_graphs(1'500);
  int64_t feasible = 0, infeasible = 0, recomputing = 0;
  std::map<std::string_view, int64_t> feasible_plans;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator, shape_of(generator));
    const int64_t least = floor(graph).bytes;
    const int64_t most = keep_all_baseline(graph).peak_bytes;
    for (const int64_t budget : {std::max<int64_t>(0, least - 1), least, (least + most) / 2, most}) {
      for (const Strategy& strategy : strategies()) {
        if (seed % one_in(strategy.name) != 0) continue;
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::string(strategy.name) + ", budget " +
                     std::to_string(budget));
        const Plan made = plan(graph, {.budget_bytes = budget,
                                       .strategy = std::string(strategy.name),
                                       .keep_order = seed % 2 == 0,
                                       .max_orders = 50});
        ASSERT_EQ(testing::plan_fault(graph, made, budget), "");
        if (made.placement) {
          ASSERT_EQ(made.placement->arena_bytes, made.placement->max_live_bytes);
        }
        ++(made.feasible ? feasible : infeasible);
        feasible_plans[strategy.name] += made.feasible ? 1 : 0;
        recomputing += made.order.size() > graph.ops.size();
        // The floor may need another order.
        if (strategy.name == "auto" && budget >= least && seed % 2 != 0) {
          ASSERT_TRUE(made.feasible) << "the floor is reachable";
        }
      }
    }
  }
  // The test is worth nothing if a side of it hardly ever occurs.
  EXPECT_GT(feasible, static_cast<int64_t>(graphs) * 4);
  EXPECT_GT(infeasible, static_cast<int64_t>(graphs) * 2);
  EXPECT_GT(recomputing, static_cast<int64_t>(graphs) * 4);
  for (const Strategy& strategy : strategies()) {
    EXPECT_GE(feasible_plans[strategy.name], static_cast<int64_t>(graphs / one_in(strategy.name)))
        << strategy.name;
  }
}

// Searches may pack and offload; the others plan as if that were not possible.
TEST(Strategies, KeepTheirPromiseOnRandomGraphsWithMoves) {
  const uint64_t graphs = testing::property_graphs(300);
  std::map<std::string_view, int64_t> feasible, moving;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator, shape_of(generator));
    testing::add_random_moves(generator, graph);
    const int64_t least = floor(graph).bytes;
    const int64_t most = keep_all_baseline(graph).peak_bytes;
    for (const int64_t budget : {std::max<int64_t>(0, least - 1), least, (least + most) / 2, most}) {
      for (const Strategy& strategy : strategies()) {
        if (seed % one_in(strategy.name) != 0) continue;
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::string(strategy.name) + ", budget " +
                     std::to_string(budget));
        const Plan made = plan(graph, {.budget_bytes = budget,
                                       .strategy = std::string(strategy.name),
                                       .keep_order = seed % 2 == 0,
                                       .max_orders = 50});
        ASSERT_EQ(testing::plan_fault(graph, made, budget), "");
        feasible[strategy.name] += made.feasible;
        const bool moves = std::ranges::any_of(made.order, [&](OpId id) { return graph.is_move(id); });
        ASSERT_TRUE(!moves || strategy.searches || strategy.name.ends_with("_only"));
        moving[strategy.name] += moves;
        // The floor may need another order.
        if (strategy.searches && budget >= least && seed % 2 != 0) {
          ASSERT_TRUE(made.feasible) << "the floor is reachable";
        }
      }
    }
  }
  for (const Strategy& strategy : strategies()) {
    const int64_t tried = static_cast<int64_t>(graphs / one_in(strategy.name));
    EXPECT_GE(feasible[strategy.name], tried / 2) << strategy.name;
    if (strategy.searches || strategy.name.ends_with("_only")) {
      EXPECT_GT(moving[strategy.name], tried / 2) << strategy.name;
    }
  }
}

TEST(Strategies, SameInputGivesTheSamePlan) {
  for (uint64_t seed = 0; seed < testing::property_graphs(15); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const int64_t budget = (floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 2;
    for (const Strategy& strategy : strategies()) {
      const PlanOptions options{.budget_bytes = budget,
                                .strategy = std::string(strategy.name),
                                .max_orders = 2'000};
      EXPECT_EQ(plan(graph, options).order, plan(graph, options).order) << strategy.name;
    }
  }
}

TEST(Plan, KeepOrderKeepsTheOrderOfFirstRuns) {
  for (uint64_t seed = 0; seed < testing::property_graphs(60); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const int64_t budget = (floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 2;
    const Plan made = plan(
        graph, {.budget_bytes = budget, .strategy = "search", .keep_order = true, .max_orders = 2'000});
    ASSERT_EQ(testing::plan_fault(graph, made, budget), "") << "seed " << seed;
    size_t first_runs = 0;
    std::vector<bool> seen(graph.ops.size(), false);
    for (const OpId op : made.order) {
      if (seen[index(op)]) continue;
      seen[index(op)] = true;
      EXPECT_EQ(index(op), first_runs++) << "seed " << seed;
    }
  }
}

TEST(Plan, PlacedPlansFitWithTheirAddresses) {
  const uint64_t graphs = testing::property_graphs(45);
  uint64_t placed = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const int64_t budget = (floor(graph).bytes * 2 + keep_all_baseline(graph).peak_bytes) / 3;
    const Plan made = plan(
        graph, {.budget_bytes = budget, .strategy = "search", .placed = true, .max_orders = 500});
    if (!made.feasible) continue;
    ++placed;
    ASSERT_TRUE(made.placement) << "seed " << seed;
    EXPECT_EQ(testing::plan_fault(graph, made, budget), "") << "seed " << seed;
    EXPECT_LE(graph.external_bytes() + made.placement->arena_bytes, budget) << "seed " << seed;
  }
  EXPECT_GT(placed, graphs / 3);
}

TEST(Plan, EmptyGraphFitsIntoNothing) {
  for (const Strategy& strategy : strategies()) {
    const Plan made =
        plan(Graph{}, {.budget_bytes = 0, .strategy = std::string(strategy.name)});
    EXPECT_TRUE(made.feasible) << strategy.name;
    EXPECT_TRUE(made.order.empty()) << strategy.name;
  }
  EXPECT_EQ(floor(Graph{}).bytes, 0);
}

}  // namespace strategies_test
}  // namespace remat
