// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"

namespace remat {

// The one memory model. Nothing else in the library says how many bytes a schedule needs.
//
// Externals are resident throughout. While an op runs, its results and its workspace are resident
// together with everything that was; a result that takes the place of a dying input adds only its
// bytes beyond that input's.
//
//     step                 conv        relu       free a1    pool          (a1, a2: 8, w, x: 4 each)
//     resident during it   4+4+8=16    16+8=24    16         16+2+1=19     (pool: result 2, workspace 1)
//     peak                             24 ◀ peak_step
//
// With reuse=a2<a1, relu would add nothing: the peak would be 19, at pool.
//
// A packed copy counts for its packed bytes, an offloaded one for none. The bytes of what is offloaded
// leave with the free that waits for the end of the write, those of what comes back are taken when the
// prefetch begins. Time is that of step_clock.h.

struct Moment {
  int64_t bytes = 0;  // resident while the step runs; after it, for a free
  std::array<int64_t, kRoleCount> by_role{};
  int64_t workspace_bytes = 0;  // part of `bytes`, in no role
  int64_t begin_ns = 0;         // when the step begins, having waited for transfers if it must
};

struct Simulation {
  int64_t peak_bytes = 0;
  size_t peak_step = 0;  // the first step that reaches the peak; 0 where there are no steps
  int64_t time_ns = 0;    // of all steps, ...
  int64_t waited_ns = 0;  // ... and what of it was spent waiting for transfers
  std::vector<Moment> timeline;  // one for each step
};

// Demands a schedule that fits the graph (rewrite or parse_schedule made it), not a legal one.
Simulation simulate(const Graph& graph, const Schedule& schedule);

// The same without the timeline, for planners, who ask thousands of times.
struct Peak {
  int64_t bytes = 0;
  size_t step = 0;
  int64_t time_ns = 0;
};
Peak simulate_peak(const Graph& graph, const Schedule& schedule);

}  // namespace remat
