// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/order/context.h"

namespace remat {

// Simulated annealing for at most `work`, for graphs small enough to look at many orders: moves, inserts
// and erases one op at a time, through orders that do not fit, on
//
//     energy = overhead in % + weight · overflow / budget
//
// where the weight grows as the temperature falls. It finds what greedy repair cannot see: an op run
// elsewhere *and* another one re-run. The best order that fits is kept, so that an order that fits can
// only get faster; one that does not may come to fit.
void anneal(SearchContext& context, FoundOrder& best, int64_t work, Effort& effort);

}  // namespace remat
