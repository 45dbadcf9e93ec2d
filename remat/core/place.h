// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/packing/stages.h"
#include "remat/core/schedule.h"

namespace remat {

class Effort;

// Static addresses for everything a schedule keeps in the arena: internal instances and workspaces.
// Externals live elsewhere.
//
// Address against time; every box is one instance, w is a workspace that lives for one step:
//
//     192 ┤        ┌─w─┐
//     128 ┤   ┌────┴───┤ ┌─────┐       No two boxes overlap. A result that takes the place of
//      64 ┤   │   a2   │ │ a3  │       its input (reuse) has the input's address.
//       0 ┤───┴────────┴─┴─────┴──
//
// Addresses are multiples of 64, sizes rounded up to 64: `max_live_bytes` counts the rounded sizes, so
// it is the least that any placement of this schedule can need and arena_bytes == max_live_bytes
// means that nothing is lost. A schedule that offloads uses the channel's alignment if that is more.

inline constexpr int64_t kArenaAlignment = 64;
inline constexpr int64_t kNoAddress = -1;

struct PlaceOptions {
  // Turned into counted work, as that of PlanOptions: the same schedule with the same limit has the same
  // placement. 0: greedy orders only, which always finish. The default is what the first try of a placed plan
  // has of plan()'s own default, so that both find the same addresses.
  double time_limit_seconds = 1.6;
  int64_t enough_bytes = 0;   // an arena of so much need not be smaller
  PackingStages stages = {};  // to measure what each is worth: bench/README.md has the table
};

struct Placement {
  // By instance; kNoAddress for externals. Of an offloaded form: the offset on the channel, where
  // each has bytes of its own.
  std::vector<int64_t> instance_offset;
  std::vector<int64_t> workspace_offset;  // by step; kNoAddress where the op needs none
  int64_t arena_bytes = 0;
  int64_t channel_bytes = 0;  // that offloaded forms take on the channel
  int64_t max_live_bytes = 0;
  bool optimal = false;  // arena_bytes is proven to be the least possible
};

// What addresses and sizes in the arena of this schedule are multiples of.
int64_t arena_alignment(const Graph& graph, const Schedule& schedule);

Placement place(const Graph& graph, const Schedule& schedule, const PlaceOptions& options = {});
// The same, charged to an effort and ended by it.
Placement place(const Graph& graph, const Schedule& schedule, const PlaceOptions& options,
                Effort& effort);

}  // namespace remat
