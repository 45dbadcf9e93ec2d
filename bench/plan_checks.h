// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/plan_cells.h"

namespace remat::bench {

// What is asked of a table of plans, as counts, with the cases that fail one by one. Functions that
// take a strategy compare it with all others of the table and skip graphs on which it did not run.

struct Check {
  int64_t failed = 0;
  int64_t total = 0;
  std::vector<std::string> failures;  // one line each
};

// A cell fails if some other strategy has a faster plan there, or the only one. Counts the cells in
// which at least one strategy fits.
Check check_best(const std::vector<GraphRows>& graphs, std::string_view strategy);

// A row fails if a smaller budget gives a faster plan, or a plan where a larger one gives none.
Check check_monotone(const std::vector<GraphRows>& graphs, std::string_view strategy);

// The lowest budget that was met, in percent; none if none was.
std::optional<double> lowest_met(const Row& row);

struct Lowest {
  std::string graph;
  std::optional<double> own;
  std::optional<double> other;
  std::string other_strategy;  // the first that reaches `other`
  double floor_percent = 0;

  // Some plan fits a budget that floor() calls unreachable.
  bool below_floor() const;
};
// `parts`: strategies that the one is made of, which are no others.
std::vector<Lowest> lowest_budgets(const std::vector<GraphRows>& graphs, std::string_view strategy,
                                   const std::vector<std::string_view>& parts = {});

// Over all plans that fit.
inline constexpr double kWastePercentAllowed = 2;
struct Placements {
  int64_t plans = 0;
  int64_t tight = 0;     // arena_bytes == max_live_bytes
  int64_t wasteful = 0;  // beyond what is allowed
  std::vector<std::string> wasteful_plans;  // one line each
  double worst_waste_percent = 0;
  std::string worst;  // which plan that is; empty if there is no waste
};
Placements check_placements(const std::vector<GraphRows>& graphs);

}  // namespace remat::bench
