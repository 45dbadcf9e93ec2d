// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "remat/core/order/context.h"

namespace remat {

// The re-runs of an order, and taking out those that are not needed.

// Positions at which an op stands again, and of the moves that bring a value back: unpack, prefetch and
// read_packed.
std::vector<size_t> reruns_of(const Graph& graph, std::span<const OpId> order);

// The order without the positions that are marked; an op that read packed bytes there reads the value.
std::vector<OpId> without(const Graph& graph, std::span<const OpId> order,
                          const std::vector<bool>& erased);

// Takes out the re-runs and moves none of whose results is used before it is made again, and those that
// only served them: one pass from the end finds both.
void erase_dead(const Graph& graph, const OrderCost& cost, std::vector<OpId>& order, Effort& effort);

// Takes out, one by one as they are listed, the re-runs without which `good(order)` still holds, until the
// effort is exhausted. Says whether there were any.
template <typename Good>
bool erase_needless(const Graph& graph, std::vector<OpId>& order, std::span<const size_t> reruns,
                    Effort& effort, const Good& good) {
  std::vector<bool> erased(order.size(), false);
  bool any = false;
  for (const size_t rerun : reruns) {
    if (effort.exhausted()) break;  // a trial takes time even where it is not looked at
    erased[rerun] = true;
    const bool needless = good(without(graph, order, erased));
    erased[rerun] = needless;
    any = any || needless;
  }
  if (any) order = without(graph, order, erased);
  return any;
}

// Erases re-runs that are not needed to fit, the most expensive first; `most` bounds the tries.
void prune(SearchContext& context, FoundOrder& found, size_t most, Effort& effort);

}  // namespace remat
