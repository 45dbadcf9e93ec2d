// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/brute_force.h"

namespace remat::testing {

std::optional<int64_t> brute_force_floor(const Graph& graph, int64_t low, int64_t high,
                                         Freedom freedom) {
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    // A reference must not give up; comparing states counts as well as making them.
    Effort effort;
    const StateSearchResult result = search_states(
        graph, middle, effort, {.freedom = freedom, .ignore_time = true, .max_states = 10'000'000});
    if (!result.complete) return std::nullopt;
    if (result.feasible) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace remat::testing
