// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/core/effort.h"

namespace remat {

// A mixed-integer linear model, minimised by HiGHS. The only file that knows the solver.

// Whether the library was built with a solver. Without one, solve() finds nothing.
bool has_solver();

struct Summand {
  int32_t variable = 0;
  double factor = 0;
};

struct SolveOptions {
  double gap = 1e-6;  // a point this close to the lower bound will do
  double enough = std::numeric_limits<double>::infinity();  // a lower bound that high ends the work
};

struct Solution {
  enum class Status : uint8_t {
    optimal,     // `values` are the best there are, up to the solver's tolerances
    feasible,    // `values` are feasible; the effort was used up
    infeasible,  // the solver has shown that there are none
    unknown,     // the effort was used up, or there is no solver
  };
  Status status = Status::unknown;
  std::vector<double> values;  // empty unless optimal or feasible
  double lower_bound = 0;      // of the objective over all points; -infinity where none is known
};

class LinearModel {
 public:
  // Returns the variable's number.
  int32_t add_variable(double lower, double upper, double cost, bool integer);
  int32_t add_binary(double cost) { return add_variable(0, 1, cost, true); }
  // lower <= the sum of the summands <= upper. Each variable at most once; use the infinities of
  // double for open sides.
  void add_row(double lower, std::span<const Summand> summands, double upper);

  int32_t variable_count() const { return static_cast<int32_t>(cost_.size()); }
  int64_t summand_count() const { return static_cast<int64_t>(summand_variable_.size()); }

  // Spends from the effort, by iterations and rounds of the solver. Deterministic: one thread, fixed
  // seed, no clock. Never prints.
  Solution solve(const SolveOptions& options, Effort& effort) const;

 private:
  std::vector<double> cost_, lower_, upper_;  // by variable
  std::vector<int> integer_;                  // by variable, as the solver wants it
  std::vector<double> row_lower_, row_upper_;
  std::vector<int> row_start_;
  std::vector<int> summand_variable_;
  std::vector<double> summand_factor_;
};

}  // namespace remat
