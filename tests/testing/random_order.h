// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <vector>

#include "remat/core/graph.h"

namespace remat::testing {

// A legal order with repeats: the given one after up to `changes` random changes, each an op
// inserted at a random place or two neighbours swapped, kept where `rewrite` finds the result
// legal.
std::vector<OpId> random_order(std::mt19937_64& generator, const Graph& graph, int changes);

}  // namespace remat::testing
