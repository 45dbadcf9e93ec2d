// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/core/effort.h"
#include "remat/core/exact/state_search.h"
#include "remat/core/graph.h"
#include "remat/core/plan.h"

namespace remat {

// search_states() with the freedom that the options leave, for as many states as their share of the time limit
// allows: every plan of a small graph. Not complete where it does not apply.
StateSearchResult search_all_states(const Graph& graph, const PlanOptions& options, Effort& effort);

}  // namespace remat
