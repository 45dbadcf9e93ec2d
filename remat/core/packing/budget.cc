// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/budget.h"

namespace remat::detail {

SearchBudget SearchBudget::of(int64_t nodes, double seconds) {
  // A limit of more than a year, infinity included, would overflow the clock.
  const std::chrono::duration<double> limit(std::clamp(seconds, 0.0, 3e7));
  return {.nodes_left = nodes,
          .deadline = std::chrono::steady_clock::now() +
                      std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit)};
}

void SearchBudget::pay(int64_t nodes) {
  constexpr int64_t kNodesPerLook = 1024;
  const int64_t before = nodes_left / kNodesPerLook;
  nodes_left -= nodes;
  if (nodes_left / kNodesPerLook == before || nodes_left <= 0) return;
  if (std::chrono::steady_clock::now() >= deadline) nodes_left = 0;
}

}  // namespace remat::detail
