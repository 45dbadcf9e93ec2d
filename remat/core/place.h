// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/packing/stages.h"
#include "remat/core/schedule.h"

namespace remat {

// Static addresses for everything a schedule keeps in the arena: internal instances and workspaces.
// Externals live elsewhere.
//
// Address against time; every block is one instance, w is a workspace that lives for one step:
//
//     192 ┤        ┌─w─┐
//     128 ┤   ┌────┴───┤ ┌─────┐       No two blocks overlap. A result that takes the place of
//      64 ┤   │   a2   │ │ a3  │       its input (reuse) has the input's address.
//       0 ┤───┴────────┴─┴─────┴──
//
// Blocks are 64-byte aligned, sizes rounded up to 64: `max_live_bytes` counts the rounded sizes, so
// it is the least that any placement of this schedule can need and arena_bytes == max_live_bytes
// means that nothing is lost.

inline constexpr int64_t kArenaAlignment = 64;
inline constexpr int64_t kNoAddress = -1;

struct PlaceOptions {
  // What decides how long the searches go on: a second or two of one core. The heuristics always
  // finish. The same schedule with the same limit has the same placement, ...
  int64_t max_search_nodes = 4'000'000;
  double time_limit_seconds = 10.0;  // ... unless this safety net for slow machines strikes first
  int64_t enough_bytes = 0;          // an arena of so much need not be smaller
  PackingStages stages = {};         // for measurements: all of them help
};

struct Placement {
  std::vector<int64_t> instance_offset;   // by instance; kNoAddress for externals
  std::vector<int64_t> workspace_offset;  // by step; kNoAddress where the op needs none
  int64_t arena_bytes = 0;
  int64_t max_live_bytes = 0;
  bool optimal = false;  // arena_bytes is proven to be the least possible
};

Placement place(const Graph& graph, const Schedule& schedule, const PlaceOptions& options = {});

}  // namespace remat
