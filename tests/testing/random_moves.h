// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>

#include "remat/core/graph.h"
#include "tests/testing/random_graph.h"

namespace remat::testing {

// Gives some storages of a graph packed forms, with and without unpack, with and without readers, and
// mostly adds a channel, slow or fast beside the ops.
void add_random_moves(std::mt19937_64& generator, Graph& graph);

// Some values are packed and some offloaded between two of their uses, at random, wherever the result is
// legal. Needless transfers and packs are among them.
std::vector<OpId> with_random_moves(std::mt19937_64& generator, const Graph& graph,
                                    std::vector<OpId> order, int tries);

}  // namespace remat::testing
