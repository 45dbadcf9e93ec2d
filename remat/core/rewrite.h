// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"

namespace remat {

struct RewriteOptions {
  // Let results take the place of dying inputs where the graph allows it. Off for the memory of the
  // plain framework: keep_all_baseline(), and what reports show beside a plan.
  bool reuse = true;
};

// Turns an order of ops, with repeats, into a schedule. Everything follows from the order:
//
//     order      conv       relu       pool       conv            d_pool     d_relu
//     schedule   run conv   run relu   run pool   recompute conv  run d_pool run d_relu
//                           free a1                                          free a1#1
//     a1         ├──────────┤
//     a1#1                                        ├──────────────────────────┤
//
// - the first occurrence of an op is its run, every later one a recompute into fresh instances;
// - an op takes each value (storage at a version) from the instance in which it was made last, so
//   in-place chains must be re-run from their creator to have an earlier version again;
// - an instance is freed right after its last use; outputs, at their last version, never;
// - with `reuse`, a result takes the place of the first source listed for it that dies there and whose
//   place is not taken yet; externals and outputs, at their last version, do not die;
// - moves (moves.h) stand where they are in the order, but for offloads: the step `offload` comes right
//   after the last use of the copy, and the copy is freed, when it is written, where the offload stands.
//   Transfers whose result no op needs are left out.
//
// Throws Error if the order is not legal: an op missing, a value that nothing holds at that point, a
// re-run of an op that must not be re-run, random ops, `once` ops or ops with effects run for the
// first time in another mutual order than the graph's, a copy that is used after it was offloaded.
// Linear in the length of the order.
Schedule rewrite(const Graph& graph, std::span<const OpId> order, const RewriteOptions& options = {});

// The order that rewrite made a schedule of, without needless transfers.
std::vector<OpId> order_of(const Graph& graph, const Schedule& schedule);

}  // namespace remat
