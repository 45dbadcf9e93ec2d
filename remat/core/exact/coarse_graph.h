// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "remat/core/graph.h"

namespace remat {

// The large storages of a graph and the ops that make them: a graph small enough to look at every
// plan of it (state_search.h), for a bound.
//
//     graph    a1 ──▶ a2 ──▶ logits ──▶ loss ──▶ d_logits ──▶ g2 ──▶ g1      logits and so on are small
//     coarse   a1 ──▶ a2 ──▶ (head) ──────────────────────▶ g2 ──▶ g1      (head): 0 bytes, for the order
//
// Every plan of the graph, without the re-runs of ops that are left out, is a plan of the coarse one,
// needs no more memory there and re-runs for no longer: what is small is there from its first run on
// and takes no bytes; ops that make nothing large run at no cost; what waited for an op that is left
// out waits for what that op waited for.
//
// `most_ops` and `most_values` limit what is kept: the largest storages, as many as there is room
// for. Where not even the largest fit, the result has no ops.
Graph coarse_graph(const Graph& graph, size_t most_ops, size_t most_values);

}  // namespace remat
