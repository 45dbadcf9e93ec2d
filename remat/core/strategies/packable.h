// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/core/effort.h"
#include "remat/core/graph.h"
#include "remat/core/plan.h"

namespace remat {

// Orders of the same runs take equally long, but addresses are easier to find for some of them: hard
// where memory is full for a hundred runs in a row, easy where it is full at single runs.
//
//     bytes ┬   ┌───┐ ┌────┐           ┬   ┌─┐    ┌──┐
//           │ ┌─┘   └─┘    └─┐    ──▶  │ ┌─┘ │    │  │       some ops run earlier or later: less
//      line ┤╌│╌╌╌╌╌╌╌╌╌╌╌╌╌╌│╌╌       ┤╌│╌╌╌└────┘╌╌└─┐╌    lies above the line
//           └─┴──────────────┴─        └─┴────────────┴─
//
// Looks for addresses as they are and, where these waste memory, for those of a few flatter orders,
// not for long. The plan gets another order, never with a higher peak, if that wastes nothing or clearly
// less, and the addresses if they waste nothing, or fit into the budget where options.placed asks for
// that. Does nothing where the order must be kept, and for plans that do not fit or are very long.
void make_packable(const Graph& graph, const PlanOptions& options, Effort& effort, Plan& plan);

}  // namespace remat
