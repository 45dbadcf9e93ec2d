// SPDX-License-Identifier: Apache-2.0
#include "bench/plan_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "remat/core/effort.h"
#include "remat/core/place.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/units.h"
#include "remat/core/verify.h"

namespace remat::bench {
namespace {

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void check(const Graph& graph, const Plan& plan, int64_t budget_bytes, Cell& cell) {
  const Schedule schedule = rewrite(graph, plan.order);
  if (const auto found = verify(graph, schedule, plan.feasible ? budget_bytes : kNoBudget)) {
    cell.violation = fmt::format("{} at step {}, {}: {}", name(found->kind), found->step, found->op,
                                 found->reason);
    return;
  }
  if (!plan.feasible) return;
  const Placement placement = plan.placement ? *plan.placement : place(graph, schedule);
  cell.arena_bytes = placement.arena_bytes;
  cell.max_live_bytes = placement.max_live_bytes;
}

Cell plan_cell(const Graph& graph, const Baseline& baseline, const PlanOptions& options) {
  Cell cell;
  try {
    const double start = thread_cpu_seconds();
    const Plan made = plan(graph, options);
    cell.plan_seconds = thread_cpu_seconds() - start;
    cell.feasible = made.feasible;
    cell.time_ns = made.time_ns;
    cell.overhead_percent = percent(made.time_ns - baseline.time_ns, baseline.time_ns);
    check(graph, made, options.budget_bytes, cell);
  } catch (const std::exception& error) {
    cell.violation = fmt::format("throws: {}", error.what());
  }
  return cell;
}

// Between the lowest budget of the row that is met and the highest below it that is not.
std::optional<double> find_lowest(const Row& row, const std::function<bool(double)>& fits) {
  std::optional<double> lowest;
  double missed = 0;
  for (const Cell& cell : row.cells) {
    if (cell.feasible) lowest = cell.budget_percent;
  }
  if (!lowest) return lowest;
  for (const Cell& cell : row.cells) {
    if (cell.budget_percent < *lowest) missed = std::max(missed, cell.budget_percent);
  }
  while (*lowest - missed > 1) {
    const double middle = std::floor((*lowest + missed) / 2);
    if (middle <= missed) break;
    (fits(middle) ? *lowest : missed) = middle;
  }
  return lowest;
}

}  // namespace

GraphRows plan_cells(const std::string& name, const Graph& graph, const Grid& grid) {
  const Baseline baseline = keep_all_baseline(graph);
  GraphRows result{.graph = name,
                   .op_count = static_cast<int64_t>(graph.ops.size()),
                   .floor_percent = percent(floor(graph).bytes, baseline.peak_bytes),
                   .rows = {}};
  for (const std::string& strategy : grid.strategies) {
    Row row{.strategy = strategy, .cells = {}};
    const auto options_at = [&](double budget) {
      if (grid.progress) grid.progress(strategy, budget);
      PlanOptions options;
      options.strategy = strategy;
      options.budget_bytes = parse_budget(fmt::format("{}%", budget), baseline.peak_bytes);
      options.time_limit_seconds = grid.time_limit_seconds;
      options.stages = grid.stages;
      options.placed = grid.placed;
      return options;
    };
    for (const double budget : grid.budget_percents) {
      row.cells.push_back(plan_cell(graph, baseline, options_at(budget)));
      row.cells.back().budget_percent = budget;
    }
    row.lowest_percent =
        find_lowest(row, [&](double budget) { return plan(graph, options_at(budget)).feasible; });
    result.rows.push_back(std::move(row));
  }
  return result;
}

}  // namespace remat::bench
