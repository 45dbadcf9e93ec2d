// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "remat/core/graph.h"
#include "remat/core/place.h"
#include "remat/core/schedule.h"

namespace remat {

// What is wrong with the addresses of a schedule, in words; empty if nothing is. For addresses that
// come from elsewhere than from place(), with which it shares no code: one for every internal
// instance and workspace and for nothing else, aligned, inside of the arena; no two things at one
// place while both are there, but for a result at the address of the input whose place it takes;
// `arena_bytes` and `max_live_bytes` as what is placed makes them.
//
// Demands a schedule that verify accepts. n log n in the length of the schedule.
std::string fault_in_addresses(const Graph& graph, const Schedule& schedule,
                               const Placement& placement);

}  // namespace remat
