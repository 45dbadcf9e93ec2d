// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "remat/core/analysis/interpolate.h"
#include "remat/core/graph.h"

namespace remat {

// The largest batch, sequence or image that trains inside a budget.
//
//     record a few small sizes ──▶ interpolate the graph of any other ──▶ floor, plan: does it fit?
//                 ▲                                                         │ the largest that does
//                 └───────── the graph as it was recorded there ◀── run it, count its bytes
//
// An interpolated graph is an estimate (interpolate.h), so that a size counts only once it has been
// run inside the budget. Every run makes another size known, the next prediction is the better for it,
// and the search ends where the size after the one that ran is predicted not to fit. Sizes are taken to
// be monotone: where one does not fit, no larger one does.

// One size run without a plan.
struct PlainRun {
  Graph graph = {};        // recorded, with times
  int64_t peak_bytes = 0;  // counted
  int64_t step_ns = 0;
};

// One size planned and run inside a budget.
struct PlannedRun {
  Graph graph = {};       // recorded, with times; also where no plan fits
  bool feasible = false;  // a plan was found; without one nothing below is known
  int64_t predicted_peak_bytes = 0;  // of the plan: what is live
  int64_t measured_peak_bytes = 0;   // counted in the step
  int64_t reserved_bytes = 0;        // externals and the arena: what the budget bounds
  int64_t plan_time_ns = 0;          // of the plan, by the times of ops
  int64_t step_ns = 0;               // measured
};

// A program that can be made at any size: the narrow way from `fit` to the world. What its
// functions throw comes out of `fit`.
struct SizedProgram {
  std::function<PlainRun(int64_t size)> run_plainly = {};
  std::function<PlannedRun(int64_t size, int64_t budget_bytes)> run_planned = {};
};

struct FitOptions {
  int64_t budget_bytes = 0;
  Growth growth = Growth::affine;  // of bytes with the size
  // Sizes that are looked at: the multiples of `multiple` from `smallest` to `largest`.
  int64_t smallest = 1;
  int64_t largest = 1'000'000;
  int64_t multiple = 1;
  // What the memory may cost: the time of the planned step is at most so many times that of the
  // plain step of the same size, by the times of ops.
  double most_time = std::numeric_limits<double>::infinity();
  double plan_seconds = 2.0;  // for each of a handful of plans
  uint64_t seed = 1;
  std::function<void(const std::string&)> progress = {};  // what is going on: "planning size 12"
};

// One way to run the step, at the largest size that it can take.
struct FittedSize {
  int64_t size = 0;  // 0: not even the smallest
  int64_t predicted_peak_bytes = 0;
  int64_t measured_peak_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t step_ns = 0;
};

struct Fit {
  FittedSize planned = {};
  FittedSize plain = {};  // predicted: everything kept; reserved is what was measured
  // The size after the one that ran; 0 if that was the largest allowed. Its floor is that of an
  // interpolated graph.
  int64_t next_size = 0;
  int64_t next_floor_bytes = 0;
  // Why it does not fit: "the least known peak, 2.1 GiB, is above the budget".
  std::string next_reason = {};
  // Of the smallest size, where that does not fit: the least that a plan is known to need, by its
  // interpolated graph.
  int64_t floor_bytes = 0;
  // What the search took.
  int plans = 0;
  int plain_runs = 0;
  int planned_runs = 0;
};

// Finds both sizes. That nothing fits is an answer, not an error. Throws Error for options without
// a size, and where the program is not the same one at different sizes.
Fit fit(const SizedProgram& program, const FitOptions& options);

}  // namespace remat
