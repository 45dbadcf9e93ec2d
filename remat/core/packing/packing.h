// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/packing/problem.h"
#include "remat/core/packing/stages.h"

namespace remat {

struct PackingOptions {
  // For all stages together; the greedy orders always finish. A node is a fixed amount of work, some
  // tenths of a microsecond.
  int64_t max_search_nodes = 4'000'000;
  double time_limit_seconds = 10.0;  // a safety net: what it cuts short does not repeat
  int64_t enough_height = 0;         // what is this low need not be lower
  PackingStages stages = {};
};

struct Packing {
  Offsets offset;            // by item
  int64_t height = 0;        // the least that holds every item
  int64_t lower_bound = 0;   // no packing is lower than this
  int64_t search_nodes = 0;  // spent after the greedy orders
};

// Stops as soon as the height is the lower bound, or low enough, which is also what all stages aim at.
// Greedy takes time near-linear in the items; the exact search is left out where there are too many of
// them. The same problem with the same options gives the same packing, unless the time
// limit strikes before the node limit does.
Packing pack(const PackingProblem& problem, const PackingOptions& options = {});

}  // namespace remat
