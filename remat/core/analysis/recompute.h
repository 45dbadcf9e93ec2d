// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/analysis/uses.h"
#include "remat/core/graph.h"

namespace remat {

// From "forget these storages here" to an order of ops. Strategies decide what to forget; this is
// the one place that knows how to have it again.

// The storage is forgotten once `after` has run. The next op of the given order that needs it has it
// made again right before itself, as late as can be.
struct Drop {
  StorageId storage{};
  OpId after{};
};

struct RecomputeOptions {
  // What is made on the way to a forgotten value: kept for its own later use (shared, one pass over
  // a segment, all of it resident), or made again when its turn comes (less memory, more time).
  bool share = false;
  // Storages that no drop forgets and that are used at or after this op are held beyond their own last
  // use for re-runs that read them. Otherwise what is past its last use is gone, and made again.
  std::optional<OpId> hold_sources_from = {};
  int64_t max_runs = std::numeric_limits<int64_t>::max();
};

struct Recomputation {
  std::vector<OpId> order;
  bool complete = true;  // false: max_runs was reached and the order is not to be used
};

// Making a value again re-runs its creator and then every update up to its version, on fresh
// storages. First, in the same way, everything that those ops need and that is neither resident nor external.
// The re-runs stand in the order of the graph, each op once per block, even if several need it.
// A value that cannot be made again at that point is kept after all: the result is always legal.
Recomputation order_with_drops(const Graph& graph, const Uses& uses, std::span<const Drop> drops,
                               const RecomputeOptions& options = {});

}  // namespace remat
