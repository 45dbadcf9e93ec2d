// SPDX-License-Identifier: Apache-2.0
#include "bench/plan_checks.h"

#include <gtest/gtest.h>

namespace remat::bench {
namespace plan_checks_test {

constexpr int64_t kNone = -1;

// Times at 90, 80, ... %; kNone where the plan does not fit.
Row row(std::string strategy, const std::vector<int64_t>& times_ns) {
  Row row{.strategy = std::move(strategy), .cells = {}};
  for (const int64_t time_ns : times_ns) {
    Cell cell;
    cell.budget_percent = 90 - 10 * static_cast<double>(row.cells.size());
    cell.feasible = time_ns != kNone;
    cell.time_ns = time_ns;
    cell.arena_bytes = cell.max_live_bytes = 1000;
    row.cells.push_back(cell);
  }
  return row;
}

std::vector<GraphRows> table(std::vector<Row> rows) {
  return {{.graph = "net", .op_count = 1, .floor_percent = 10, .rows = std::move(rows)}};
}

TEST(PlanChecks, BestCountsSlowerCellsAndCellsOnlyOthersFit) {
  // Equal at 90 %, slower at 80 %, alone at 70 %, beaten at 60 %; nobody fits 50 %.
  const Check check = check_best(table({row("mutwo", {10, 11, kNone, 14, kNone}),
                                        row("every_k", {12, 13, kNone, kNone, kNone}),
                                        row("auto", {10, 12, 13, kNone, kNone})}),
                                 "auto");
  EXPECT_EQ(check.failed, 2);
  EXPECT_EQ(check.total, 4);
  ASSERT_EQ(check.failures.size(), 2u);
  EXPECT_EQ(check.failures[1], "net at 60 %: auto does not fit, mutwo 0.00 %");
}

TEST(PlanChecks, MonotoneRowsMayStopFittingButNotGetFaster) {
  EXPECT_EQ(check_monotone(table({row("auto", {10, 10, 12, kNone, kNone})}), "auto").failed, 0);
  EXPECT_EQ(check_monotone(table({row("auto", {10, 12, 11})}), "auto").failed, 1);
  EXPECT_EQ(check_monotone(table({row("auto", {10, kNone, 11})}), "auto").failed, 1);
}

TEST(PlanChecks, LowestNamesTheBestOtherStrategy) {
  const std::vector<Lowest> all =
      lowest_budgets(table({row("keep_all", {kNone, kNone, kNone}), row("mutwo", {10, 11, kNone}),
                            row("auto", {10, 11, 12})}),
                     "auto");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].own, 70);
  EXPECT_EQ(all[0].other, 80);
  EXPECT_EQ(all[0].other_strategy, "mutwo");
  EXPECT_FALSE(all[0].below_floor());
}

TEST(PlanChecks, LowestLooksBetweenTheCellsAndPassesOverParts) {
  std::vector<GraphRows> graphs = table({row("mutwo", {10, kNone}), row("search", {10, 11}),
                                         row("auto", {10, 11})});
  graphs[0].rows[0].lowest_percent = 84;
  graphs[0].rows[2].lowest_percent = 77;
  const Lowest with_parts = lowest_budgets(graphs, "auto", {"search"})[0];
  EXPECT_EQ(with_parts.own, 77);
  EXPECT_EQ(with_parts.other, 84);
  EXPECT_EQ(with_parts.other_strategy, "mutwo");
  EXPECT_EQ(lowest_budgets(graphs, "auto")[0].other_strategy, "search");
}

// Seen with lstm_lm: floor() said 64.6 %, recompute_all fitted 60 %.
TEST(PlanChecks, AnyPlanBelowTheFloorIsSeen) {
  std::vector<GraphRows> graphs = table({row("mutwo", {10, 11}), row("auto", {10, kNone})});
  graphs[0].floor_percent = 85;
  EXPECT_TRUE(lowest_budgets(graphs, "auto")[0].below_floor());
}

TEST(PlanChecks, PlacementsCountOnlyPlansThatFit) {
  std::vector<GraphRows> graphs = table({row("auto", {10, 11, kNone})});
  graphs[0].rows[0].cells[1].arena_bytes = 1030;
  const Placements found = check_placements(graphs);
  EXPECT_EQ(found.plans, 2);
  EXPECT_EQ(found.tight, 1);
  EXPECT_DOUBLE_EQ(found.worst_waste_percent, 3);
  EXPECT_EQ(found.wasteful, 1);
  EXPECT_EQ(found.wasteful_plans, std::vector<std::string>{"net auto at 80 %: 3.00 %"});
  EXPECT_EQ(found.worst, "net auto at 80 %");
}

}  // namespace plan_checks_test
}  // namespace remat::bench
