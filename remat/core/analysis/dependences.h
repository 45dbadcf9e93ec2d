// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "remat/core/graph.h"

namespace remat {

// Which op must have run before which, for the first time, in *every* legal order. There is such a
// pair for
// - a value and its user: what makes the value (its creator or the update to that version) first;
// - an external: there is one copy, so its changes keep their order, and an op that reads a version
//   runs before the next change (touch_order.h);
// - random ops, `once` ops and ops with effects: each class keeps its mutual order.
// An internal storage gives no pair from a reader of a version to the next update: the version can
// be made again in another copy.
struct Dependences {
  std::vector<std::vector<OpId>> before;  // by op: what it directly waits for, no repeats
  std::vector<std::vector<OpId>> after;   // by op: what directly waits for it
};
Dependences dependences_of(const Graph& graph);

// By op: whether it is reached from `op` along the edges, `op` itself not included.
std::vector<bool> reached(const std::vector<std::vector<OpId>>& edges, OpId op);

}  // namespace remat
