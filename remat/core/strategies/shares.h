// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/effort.h"
#include "remat/core/graph.h"
#include "remat/core/plan.h"

namespace remat {

// Shares of the time limit. They leave a fifth of it, for what is not counted.
inline constexpr double kStatesShare = 0.1;
inline constexpr double kAllStatesShare = 0.7;  // where nothing else will be needed then
inline constexpr double kSearchShare = 0.2;
inline constexpr double kWindowShare = 0.25;
inline constexpr double kBoundShare = 0.08;
inline constexpr double kMovesShare = 0.2;      // where a graph has moves, beyond the others
// Of the CPU time, where it ends a plan: the plan that only recomputes must leave some for moves.
inline constexpr double kWithoutMovesTime = 0.75;
// Of the CPU time, likewise: whatever happened before, the lowest plan can still be looked for.
inline constexpr double kAboveFloorTime = 0.8;
inline constexpr double kPackingShare = 0.03;   // for each of a few tries
inline constexpr double kPlaceShare = 0.8;      // for addresses that must fit, for each of a few tries
inline constexpr double kContinueShare = 0.05;  // to go on from a plan, for each of a few tries

// For a whole plan, whatever it takes: ends with four times the time limit in CPU time. Everything that
// is done for the plan is a part of it.
Effort effort_of_plan(const PlanOptions& options);

// The work that is a share of what the options allow: a time limit, or a number of orders to look at.
int64_t work_share(const Graph& graph, const PlanOptions& options, double share);

}  // namespace remat
