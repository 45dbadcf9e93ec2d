// SPDX-License-Identifier: Apache-2.0
#include "bench/plan_cells.h"

#include <fmt/format.h>

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
  const Placement placement = place(graph, schedule);
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

}  // namespace

GraphRows plan_cells(const std::string& name, const Graph& graph, const Grid& grid) {
  const Baseline baseline = keep_all_baseline(graph);
  GraphRows result{.graph = name,
                   .op_count = static_cast<int64_t>(graph.ops.size()),
                   .floor_percent = percent(floor(graph).bytes, baseline.peak_bytes),
                   .rows = {}};
  for (const std::string& strategy : grid.strategies) {
    Row row{.strategy = strategy, .cells = {}};
    for (const double budget : grid.budget_percents) {
      if (grid.progress) grid.progress(strategy, budget);
      PlanOptions options;
      options.strategy = strategy;
      options.budget_bytes = parse_budget(fmt::format("{}%", budget), baseline.peak_bytes);
      options.time_limit_seconds = grid.time_limit_seconds;
      row.cells.push_back(plan_cell(graph, baseline, options));
      row.cells.back().budget_percent = budget;
    }
    result.rows.push_back(std::move(row));
  }
  return result;
}

}  // namespace remat::bench
