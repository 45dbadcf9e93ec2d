// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/packing/packing.h"
#include "remat/core/place.h"
#include "remat/core/schedule.h"

namespace remat::testing {

// What is wrong with a placement, in words; empty if nothing is. Walks the schedule step by step
// and looks at what is there, with nothing of place's own code: addresses where and only where they
// are due, aligned; no overlap but that of a result with the input whose place it takes; the arena
// as large as what it holds; the live maximum as `simulate` has it for sizes rounded up.
std::string placement_fault(const Graph& graph, const Schedule& schedule,
                            const Placement& placement);

// The same for a bare packing: offsets not negative, no overlap, the height right and not below the
// lower bound.
std::string packing_fault(const PackingProblem& problem, const Packing& packing);

}  // namespace remat::testing
