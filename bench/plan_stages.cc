// SPDX-License-Identifier: Apache-2.0
#include "bench/plan_stages.h"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "bench/plan_checks.h"

namespace remat::bench {
namespace {

constexpr Stage kStages[] = {
    {"ruin", &SearchStages::ruin},
    {"second_start", &SearchStages::second_start},
    {"flatten", &SearchStages::flatten},
    {"constructions", &SearchStages::constructions},
    {"chain_dp", &SearchStages::chain_dp},
    {"early_updates", &SearchStages::early_updates},
    {"reorder", &SearchStages::reorder},
    {"insert_many", &SearchStages::insert_many},
    {"windows", &SearchStages::windows},
    {"polish", &SearchStages::polish},
    {"lower_targets", &SearchStages::lower_targets},
    {"bound", &SearchStages::bound},
    {"coarse_bound", &SearchStages::coarse_bound},
    {"packable", &SearchStages::packable},
};

void compare(const std::string& graph, const Cell& with, const Cell& without, StageWorth& worth) {
  worth.seconds += without.plan_seconds;
  worth.wasted += without.feasible && without.arena_bytes > without.max_live_bytes;
  if (!with.feasible && !without.feasible) return;
  if (with.feasible != without.feasible) {
    ++(with.feasible ? worth.slower : worth.faster);
    return;
  }
  worth.slower += without.time_ns > with.time_ns;
  worth.faster += without.time_ns < with.time_ns;
  const double points = without.overhead_percent - with.overhead_percent;
  worth.points += points;
  if (points <= worth.worst_points) return;
  worth.worst_points = points;
  worth.worst = fmt::format("{} {} %", graph, with.budget_percent);
}

}  // namespace

std::span<const Stage> search_stages() { return kStages; }

StageWorth worth_of_stage(const std::vector<GraphRows>& with, const std::vector<GraphRows>& without) {
  StageWorth worth;
  for (size_t g = 0; g < with.size(); ++g) {
    const Row& row = with[g].rows.front();
    const Row& other = without[g].rows.front();
    for (size_t c = 0; c < row.cells.size(); ++c) {
      compare(with[g].graph, row.cells[c], other.cells[c], worth);
    }
    constexpr double kNowhere = std::numeric_limits<double>::infinity();
    worth.higher += lowest_met(other).value_or(kNowhere) > lowest_met(row).value_or(kNowhere);
  }
  return worth;
}

}  // namespace remat::bench
