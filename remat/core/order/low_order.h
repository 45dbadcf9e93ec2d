// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "remat/core/graph.h"

namespace remat {

// A legal order of all ops, each once, made greedily for a low peak: of the ops that can run next,
// the one after which the least is resident, the given order deciding between equals. Where a graph
// is wide this is a far better start than the given order; where it is a chain it is the same.
std::vector<OpId> low_peak_order(const Graph& graph);

}  // namespace remat
