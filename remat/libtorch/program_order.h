// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "remat/libtorch/trace.h"

namespace remat::detail {

// The ops of a trace that belong into its graph, in the graph's order: the program's, with each guard
// (and what only it waits for, where that makes next to nothing) as early as its inputs allow. Guards
// keep their order, and nothing of the program behind a guard comes before it.
std::vector<size_t> graph_order(const Trace& trace);

}  // namespace remat::detail
