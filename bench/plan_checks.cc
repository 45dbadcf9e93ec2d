// SPDX-License-Identifier: Apache-2.0
#include "bench/plan_checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace remat::bench {
namespace {

const Row* row_of(const GraphRows& graph, std::string_view strategy) {
  const auto found = std::find_if(graph.rows.begin(), graph.rows.end(),
                                  [&](const Row& row) { return row.strategy == strategy; });
  return found == graph.rows.end() ? nullptr : &*found;
}

std::string outcome(const Cell& cell) {
  return cell.feasible ? fmt::format("{:.2f} %", cell.overhead_percent) : "does not fit";
}

// The row with the fastest plan in that column; null if no plan fits.
const Row* best_other(const GraphRows& graph, std::string_view strategy, size_t column) {
  const Row* best = nullptr;
  for (const Row& row : graph.rows) {
    if (row.strategy == strategy || !row.cells[column].feasible) continue;
    if (!best || row.cells[column].time_ns < best->cells[column].time_ns) best = &row;
  }
  return best;
}

// Whether going from `larger` to `smaller` budget is as it should be.
bool monotone(const Cell& larger, const Cell& smaller) {
  if (!smaller.feasible) return true;
  return larger.feasible && larger.time_ns <= smaller.time_ns;
}

}  // namespace

std::optional<double> lowest_met(const Row& row) {
  std::optional<double> lowest = row.lowest_percent;
  for (const Cell& cell : row.cells) {
    if (cell.feasible) lowest = std::min(lowest.value_or(cell.budget_percent), cell.budget_percent);
  }
  return lowest;
}

Check check_best(const std::vector<GraphRows>& graphs, std::string_view strategy) {
  Check check;
  for (const GraphRows& graph : graphs) {
    const Row* row = row_of(graph, strategy);
    for (size_t c = 0; row && c < row->cells.size(); ++c) {
      const Cell& own = row->cells[c];
      const Row* other = best_other(graph, strategy, c);
      if (!own.feasible && !other) continue;
      ++check.total;
      if (!other || (own.feasible && own.time_ns <= other->cells[c].time_ns)) continue;
      ++check.failed;
      check.failures.push_back(fmt::format("{} at {} %: {} {}, {} {}", graph.graph,
                                           own.budget_percent, strategy, outcome(own),
                                           other->strategy, outcome(other->cells[c])));
    }
  }
  return check;
}

Check check_monotone(const std::vector<GraphRows>& graphs, std::string_view strategy) {
  Check check;
  for (const GraphRows& graph : graphs) {
    const Row* row = row_of(graph, strategy);
    if (!row) continue;
    ++check.total;
    std::string steps;
    for (size_t c = 1; c < row->cells.size(); ++c) {
      const Cell& larger = row->cells[c - 1];
      const Cell& smaller = row->cells[c];
      if (monotone(larger, smaller)) continue;
      steps += fmt::format("; {} at {} %, {} at {} %", outcome(larger), larger.budget_percent,
                           outcome(smaller), smaller.budget_percent);
    }
    if (steps.empty()) continue;
    ++check.failed;
    check.failures.push_back(graph.graph + ": " + steps.substr(2));
  }
  return check;
}

std::vector<Lowest> lowest_budgets(const std::vector<GraphRows>& graphs,
                                   std::string_view strategy,
                                   const std::vector<std::string_view>& parts) {
  std::vector<Lowest> all;
  for (const GraphRows& graph : graphs) {
    const Row* own = row_of(graph, strategy);
    if (!own) continue;
    Lowest lowest{.graph = graph.graph,
                  .own = lowest_met(*own),
                  .other = {},
                  .other_strategy = {},
                  .floor_percent = graph.floor_percent};
    for (const Row& row : graph.rows) {
      const std::optional<double> met = lowest_met(row);
      if (&row == own || std::ranges::count(parts, row.strategy) > 0) continue;
      if (!met || (lowest.other && *lowest.other <= *met)) continue;
      lowest.other = met;
      lowest.other_strategy = row.strategy;
    }
    all.push_back(std::move(lowest));
  }
  return all;
}

bool Lowest::below_floor() const {
  return (own && *own < floor_percent) || (other && *other < floor_percent);
}

Placements check_placements(const std::vector<GraphRows>& graphs) {
  Placements result;
  for (const GraphRows& graph : graphs) {
    for (const Row& row : graph.rows) {
      for (const Cell& cell : row.cells) {
        if (!cell.feasible || !cell.violation.empty()) continue;
        ++result.plans;
        if (cell.arena_bytes == cell.max_live_bytes) ++result.tight;
        const double waste = 100.0 * static_cast<double>(cell.arena_bytes - cell.max_live_bytes) /
                             static_cast<double>(std::max<int64_t>(cell.max_live_bytes, 1));
        const std::string which =
            fmt::format("{} {} at {} %", graph.graph, row.strategy, cell.budget_percent);
        if (waste > kWastePercentAllowed) {
          ++result.wasteful;
          result.wasteful_plans.push_back(fmt::format("{}: {:.2f} %", which, waste));
        }
        if (waste <= result.worst_waste_percent) continue;
        result.worst_waste_percent = waste;
        result.worst = which;
      }
    }
  }
  return result;
}

}  // namespace remat::bench
