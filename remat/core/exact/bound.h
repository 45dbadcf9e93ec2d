// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "remat/core/effort.h"
#include "remat/core/graph.h"

namespace remat {

// Proven bounds on what *any* legal plan can reach: any order of the ops, any repeats. They make
// "at most 2 % above the optimum" and "no plan can fit" statements of fact.
//
// The bound on time is the largest of two: the least of all plans of the graph's few large storages,
// where these are most of it (coarse_graph.h); and the minimum of a relaxation that every plan
// satisfies (window_model.h, with the proof), for a chain of dependent ops as cuts.
struct BoundOptions {
  int64_t enough_ns = std::numeric_limits<int64_t>::max();  // a bound that high ends the work
  bool coarse = true;  // the first of the two; off to see what it is worth
};

// A lower bound on the time of every plan whose peak is within the budget; at least the time of
// running every op once. None: it is proven that there is no such plan. Without a solver, the
// first of the two bounds only; without effort, the trivial one.
std::optional<int64_t> lower_bound_time_ns(const Graph& graph, int64_t budget_bytes, Effort& effort,
                                           const BoundOptions& options = {});

// The least bound that shows a time to be as good as the best: 0.002 % below it. For steps below 50 µs
// that is the time itself.
int64_t settling_bound_ns(int64_t time_ns);
double settling_percent();

// Whether a time is as good as a bound.
bool attains(int64_t time_ns, int64_t bound_ns);

// A lower bound on the peak of every plan: the most that some op needs at its first run, or that
// the step ends with. While an op runs, its operands, results and workspace are there, and so is
// every value of an ancestor that must not be re-run and that is an output or an input of one of
// its descendants.
int64_t lower_bound_peak_bytes(const Graph& graph);

}  // namespace remat
