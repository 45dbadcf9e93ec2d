// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "remat/core/graph.h"

namespace remat::testing {

// The time of the fastest plan within a budget, over every plan there is: Dijkstra's algorithm on
// states "these ops have run, these values are there". Slow and plain on purpose, and without a line
// of the planners: it is what they are measured against.
//
// For graphs without updates, effects, random ops, `once` ops and reuse, of up to 32 ops that create
// one storage each: there a plan needs no second copy of anything. Throws Error for others.
struct FastestPlan {
  bool complete = false;           // false: gave up after `most_states`
  std::optional<int64_t> time_ns;  // if complete: none where no plan fits
  size_t states = 0;
};
FastestPlan fastest_plan(const Graph& graph, int64_t budget_bytes, size_t most_states);

}  // namespace remat::testing
