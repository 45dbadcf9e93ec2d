// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/effort.h"
#include "remat/core/packing/problem.h"
#include "remat/core/packing/stages.h"

namespace remat {

struct PackingOptions {
  int64_t enough_height = 0;  // what is this low need not be lower
  PackingStages stages = {};
};

struct Packing {
  Offsets offset;           // by item
  int64_t height = 0;       // the least that holds every item
  int64_t lower_bound = 0;  // no packing is lower than this
};

// Stops as soon as the height is the lower bound or `enough_height`, which all stages aim at, and when the
// effort, which must be limited, is exhausted. The greedy orders always finish and are not
// charged: they take time near-linear in the items. The exact search is left out where there are too many
// items. The same problem with the same effort gives the same packing.
Packing pack(const PackingProblem& problem, Effort& effort, const PackingOptions& options = {});

}  // namespace remat
