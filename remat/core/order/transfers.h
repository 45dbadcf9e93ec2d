// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/order/cost.h"

namespace remat {

// The same order with its offloads and prefetches where no op waits for them, as far as that is possible:
// an offload stands where its write has just ended, a prefetch where its read ends just in time.
//
//     order      f1  offload a  f2  f3 ... b3  prefetch a  b1        b1 waits, and so does the first offload
//     becomes    f1  f2  f3  offload a ...  prefetch a  b3  b1
//     channel       ▒▒▒▒▒▒▒▒                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//
// Writes follow each other as early as they can, reads as late as they can; where both meet, an op may have to
// wait. Needless transfers are left out. Bytes may be more than before: the caller compares.
// A legal order stays legal; of any other, an order comes out that is for OrderCost to judge.
std::vector<OpId> with_transfers_in_time(const Graph& graph, const OrderCost& cost,
                                         std::span<const OpId> order);

}  // namespace remat
