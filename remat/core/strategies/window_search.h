// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/core/effort.h"
#include "remat/core/graph.h"

namespace remat {

// Plans from the relaxation of window_model.h, for the given order of first runs. It is solved for
// a few cuts, and what it says should run again in each window is put as late as possible:
//
//     cuts where keeping      solve      re-runs      an order;       no overflow:
//     everything does not  ──▶      ──▶ by window ──▶ where does  ──▶ a plan that attains the bound
//     fit                                             it overflow?
//        ▲                                                │
//        └────────── more cuts, right there ──────────────┘
//
// Where an order overflows only inside a block of re-runs, which no cut can see, a little less
// budget is handed to the relaxation, for proposals only.
struct WindowSearchResult {
  std::vector<OpId> order;    // fits, legal, the fastest found; empty if none
  int64_t time_ns = 0;        // of `order`
  bool infeasible = false;    // proven: no plan with these first runs fits
  int64_t least_time_ns = 0;  // proven: of all plans with these first runs
  std::vector<OpId> proposal;  // legal, does not fit or is not the fastest: the last that was tried
};

// `first_runs` is a legal order that holds every op once. Deterministic; ends with the effort, or
// when nothing can be better than a plan that takes `known_time_ns`.
WindowSearchResult search_windows(const Graph& graph, std::span<const OpId> first_runs,
                                  int64_t budget_bytes, Effort& effort,
                                  int64_t known_time_ns = std::numeric_limits<int64_t>::max());

}  // namespace remat
