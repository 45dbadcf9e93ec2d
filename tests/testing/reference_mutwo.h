// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/graph.h"

namespace remat::testing {

// μ-TWO's selection (Purandare et al. 2023, appendix A, recomputation only), written down a second time
// straight from the definitions and without a line of the planner's: everything is looked for again
// after every pick. Quadratic and worse; for graphs of a few dozen ops.
//
// Deviates from the paper where strategies/mutwo.cc says that it does. Takes graphs that have a backward
// phase, and in which what an op that must not be re-run has made is never changed later.
struct ReferenceMutwo {
  struct Pick {
    StorageId storage{};
    int64_t total_recomp_time_ns = 0;  // as priced when it was picked
  };
  std::vector<Pick> picks;  // as many as are in the order
  std::vector<OpId> order;
  int64_t peak_bytes = 0;
  // recomp_time of all picks after the last of them. What the order adds is the same but for ops that
  // are in the re-runs of several picks at one place, which run once there.
  int64_t priced_ns = 0;
};
ReferenceMutwo reference_mutwo(const Graph& graph, int64_t budget_bytes);

}  // namespace remat::testing
