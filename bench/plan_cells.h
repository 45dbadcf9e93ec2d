// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/plan.h"

namespace remat::bench {

// What came out of one strategy on one graph at one budget.
struct Cell {
  double budget_percent = 0;  // of the keep-all peak
  bool feasible = false;
  int64_t time_ns = 0;
  double overhead_percent = 0;  // time beyond the plain step's
  double plan_seconds = 0;      // of CPU time, of plan() alone
  int64_t arena_bytes = 0;      // this and the next only where it is feasible
  int64_t max_live_bytes = 0;
  std::string violation;  // what verify says, or what was thrown; empty if all is well
};

// A strategy along the budgets, the largest first.
struct Row {
  std::string strategy;
  std::vector<Cell> cells;
  // The lowest budget that is met, to 1 %, looked for below the lowest of the cells; none if none is.
  std::optional<double> lowest_percent = {};
};

struct GraphRows {
  std::string graph;
  int64_t op_count = 0;
  double floor_percent = 0;  // floor(), of the keep-all peak
  std::vector<Row> rows;
};

struct Grid {
  std::vector<std::string> strategies;
  std::vector<double> budget_percents;  // falling
  double time_limit_seconds = 2;
  SearchStages stages = {};
  bool placed = false;  // plans with addresses that fit
  // Called before each plan is made.
  std::function<void(std::string_view strategy, double budget_percent)> progress = {};
};

// Plans every cell of one graph. A plan that claims to fit is verified within the budget and
// placed; one that does not is verified without a budget. Nothing that a strategy throws gets out
// of here.
GraphRows plan_cells(const std::string& name, const Graph& graph, const Grid& grid);

}  // namespace remat::bench
