// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/effort.h"
#include "remat/core/graph.h"
#include "remat/core/plan.h"

namespace remat {

// Shares of the time limit, as work. They were chosen by what a plan gains from more of it (bench/README.md) and
// add up, for a plan that uses up each of them, to
//
//     states 0.1, search 0.2 to 0.3, bound 0.08, windows 0.25, packing 9 tries of 0.03        about 1,
//     half as much again close to the floor
//     moves: search, the lowest plan, and a second try where what they found is poor        up to 1.4 more
//     addresses that must fit, all tries together                                           up to 2.6 more
//     those of the lowest plan, where nothing else fits                                     up to 0.8 more
//
// and a plan ends at four in any case, as work: before the clock does, but on a machine that is slower than the
// counted work supposes. What does not depend on the limit comes on top: the searches of floor(), some 0.2 s.
inline constexpr double kStatesShare = 0.1;
inline constexpr double kAllStatesShare = 0.7;  // of small graphs: nothing else will be needed then
inline constexpr double kSearchShare = 0.2;
inline constexpr double kWindowShare = 0.25;
inline constexpr double kBoundShare = 0.08;
inline constexpr double kMovesShare = 0.2;      // where a graph has moves, beyond the others
inline constexpr double kPoorShare = 1.0;       // where what moves found is poor, beyond that
// Of what ends a plan: the one that only recomputes must leave some of it for moves, ...
inline constexpr double kWithoutMovesPart = 0.75;
// ... and all searches for the lowest plan, where none has found one that fits.
inline constexpr double kAboveFloorPart = 0.9;
inline constexpr double kPackingShare = 0.03;   // for each of a few tries
inline constexpr double kInsideShare = 2.6;     // for a plan whose addresses fit, all tries together
inline constexpr double kPlaceShare = 0.8;      // of that, for the addresses of one plan; and of the lowest
inline constexpr double kContinueShare = 0.05;  // to go on from a plan, for each of a few tries

// For a whole plan: everything that is done for it is a part of this. Ends with four times the time limit, in
// work and in CPU time.
Effort effort_of_plan(const PlanOptions& options);

// The work that is a share of what the options allow: a time limit, or a number of orders to look at.
int64_t work_share(const Graph& graph, const PlanOptions& options, double share);

}  // namespace remat
