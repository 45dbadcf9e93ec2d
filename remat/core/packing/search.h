// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "remat/core/packing/packing.h"

namespace remat::detail {

// What a search may still spend. Nodes are counted so that results repeat; the clock is a safety
// net.
struct SearchBudget {
  int64_t nodes_left = 0;
  std::chrono::steady_clock::time_point deadline;

  bool spent() const { return nodes_left <= 0; }
  // Takes `nodes` away; looks at the clock now and then, and is spent once the deadline is over.
  void pay(int64_t nodes);
};

struct FitResult {
  std::optional<std::vector<int64_t>> offset;  // by item, if a packing was found
  // Without one: no packing is lower than this. More than the height asked for only if the search
  // was complete.
  int64_t lower_bound = 0;
};

// Looks for a packing of at most `height`, exactly: branch and bound from the bottom up. `height`
// is at least the largest load. Ends early, with nothing proven, when `budget` is spent. `seed`
// only breaks ties between equally good branches; 0 keeps the plain order.
FitResult fit_exactly(const PackingProblem& problem, int64_t height, SearchBudget& budget,
                      uint64_t seed = 0);

}  // namespace remat::detail
