// SPDX-License-Identifier: Apache-2.0
#include "bench/plan_stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace remat::bench {
namespace plan_stages_test {

constexpr double kNone = -1;

// Overheads at 80, 70, ... %; kNone where the plan does not fit.
std::vector<GraphRows> table(const std::vector<double>& overheads) {
  Row row{.strategy = "auto", .cells = {}};
  for (const double overhead : overheads) {
    Cell cell;
    cell.budget_percent = 80 - 10 * static_cast<double>(row.cells.size());
    cell.feasible = overhead != kNone;
    cell.time_ns = static_cast<int64_t>(1000 * (100 + overhead));
    cell.overhead_percent = overhead;
    cell.plan_seconds = 0.5;
    cell.arena_bytes = cell.max_live_bytes = 1000;
    row.cells.push_back(cell);
  }
  return {{.graph = "net", .op_count = 1, .floor_percent = 10, .rows = {std::move(row)}}};
}

TEST(PlanStages, CountWhatIsSlowerFasterAndDoesNotFit) {
  const std::vector<GraphRows> with = table({1, 2, 5, 7, kNone});
  std::vector<GraphRows> without = table({1, 4, 4.5, kNone, kNone});
  without[0].rows[0].cells[1].arena_bytes = 1001;
  const StageWorth worth = worth_of_stage(with, without);
  EXPECT_EQ(worth.slower, 2);
  EXPECT_EQ(worth.faster, 1);
  EXPECT_DOUBLE_EQ(worth.points, 1.5);
  EXPECT_EQ(worth.worst, "net 70 %");
  EXPECT_DOUBLE_EQ(worth.worst_points, 2);
  EXPECT_EQ(worth.higher, 1) << "60 % instead of 50 %";
  EXPECT_EQ(worth.wasted, 1);
  EXPECT_DOUBLE_EQ(worth.seconds, 2.5);
}

TEST(PlanStages, NothingLeftOutIsWorthNothing) {
  const std::vector<GraphRows> with = table({1, kNone});
  const StageWorth worth = worth_of_stage(with, with);
  EXPECT_EQ(worth.slower + worth.faster + worth.higher + worth.wasted, 0);
  EXPECT_EQ(worth.points, 0);
  EXPECT_TRUE(worth.worst.empty());
}

TEST(PlanStages, EachCanBeLeftOutByItself) {
  for (const Stage& stage : search_stages()) {
    SearchStages stages;
    EXPECT_TRUE(stages.*stage.on) << stage.name;
    stages.*stage.on = false;
    EXPECT_EQ(std::ranges::count_if(search_stages(), [&](const Stage& other) { return stages.*other.on; }),
              static_cast<std::ptrdiff_t>(search_stages().size()) - 1)
        << stage.name;
  }
}

}  // namespace plan_stages_test
}  // namespace remat::bench
