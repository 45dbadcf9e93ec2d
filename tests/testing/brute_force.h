// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "remat/core/exact/state_search.h"

namespace remat::testing {

// The optimum over every plan within the budget, for graphs of about ten forward and ten backward
// ops: the exhaustive search of state_search.h.
inline StateSearchResult brute_force(const Graph& graph, int64_t budget_bytes,
                                     Freedom freedom = Freedom::any_order) {
  Effort effort = Effort::of_work(Effort::work_of_seconds(12));  // four million states
  return search_states(graph, budget_bytes, effort, {.freedom = freedom});
}

// The least peak of any plan, found between two budgets: `low` may be too little, `high` is enough.
// None if a search gave up.
std::optional<int64_t> brute_force_floor(const Graph& graph, int64_t low, int64_t high,
                                         Freedom freedom = Freedom::any_order);

}  // namespace remat::testing
