// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/brute_force.h"

namespace remat::testing {

std::optional<int64_t> brute_force_floor(const Graph& graph, int64_t low, int64_t high,
                                         Freedom freedom) {
  Graph timeless = graph;  // any plan that fits will do
  for (Op& op : timeless.ops) op.time_ns = 0;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    // A reference must not give up; comparing states counts as well as making them.
    Effort effort = Effort::of_work(Effort::work_of_seconds(30));
    const StateSearchResult result =
        search_states(timeless, middle, effort, {.freedom = freedom});
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
