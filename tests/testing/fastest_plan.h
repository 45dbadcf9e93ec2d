// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "remat/core/graph.h"

namespace remat::testing {

struct FastestPlanOptions {
  bool keep_order = false;  // first runs in the order of the graph
  size_t most_states = 150'000;
};

// The time of the fastest plan within a budget, over every plan there is: Dijkstra's algorithm on
// states "these ops have run, so many copies of each value are there". Slow and plain on purpose, and
// without a line of the planners: it is what they are measured against.
//
// Knows every feature of the format. Throws Error for graphs of more than 32 ops or 64 values, and for
// ops that offer more than one place to take (reuse).
struct FastestPlan {
  bool complete = false;           // false: gave up after `most_states`
  std::optional<int64_t> time_ns;  // if complete: none where no plan fits
  size_t states = 0;
};
FastestPlan fastest_plan(const Graph& graph, int64_t budget_bytes,
                         const FastestPlanOptions& options = {});

}  // namespace remat::testing
