// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/order/cost.h"

namespace remat::detail {

// Where a step can be cut so that it becomes a chain of blocks: block k is a stretch of forward ops
// and the stretch of later ops that undoes it, and blocks are undone in the reverse order.
//
//     position   0  1  2  3 │ 4  5  6 │ 7  8  9  10 │ 11 12 13 │ 14 15 16 17
//     op         f1 f2 f3 f4│ f5 f6 f7│ f8 f9 d9 d8 │ d7 d6 d5 │ d4 d3 d2 d1
//     block      ──── 0 ────│ ── 1 ── │ ──── 2 ──── │ ── 1 ─── │ ──── 0 ────
//
// A cut is one forward and one backward position. What must be at hand to go on from it, the
// *bundle*, is what was made before it and is used after it in forward, or read before its backward
// position. In a plain or residual network there are cuts whose bundle is one value; with long
// skips (U-Net, attention masks) a bundle has several: such a cut is legal too, and holds more bytes.

// Where one storage that forward makes is made and used. Positions are in the given order.
struct ForwardStorage {
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  StorageId storage{};
  OrderCost::ValueIndex value = 0;  // at the turn
  int64_t bytes = 0;
  int32_t created = 0;
  int32_t last_forward = 0;         // last use before the turn, or `created`
  int32_t first_backward = kNever;  // first use from the turn on
  int32_t last_backward = -1;
};

struct ForwardFacts {
  int32_t turn = 0;              // position of the first op that is not in forward
  std::vector<bool> again;       // by op: whether a re-run of the step's forward may hold it
  std::vector<bool> kept;        // by value: never made again, there until its last use
  std::vector<int32_t> created;  // by value: position of the op that creates its storage
  std::vector<ForwardStorage> storages;  // those that can be made again, by creation
  int64_t kept_bytes = 0;                // of all storages with kept values that are used later
};

// `strict` also forbids re-runs of ops that read an external which something changes before
// backward is over. Without it the chain may turn out not to be legal: an optimizer that runs
// inside backward changes a parameter after its last reader, usually, but nothing here proves it.
ForwardFacts forward_facts(const Graph& graph, const OrderCost& cost, bool strict);

struct ChainCut {
  int32_t forward = 0;   // the first forward position after the cut
  int32_t backward = 0;  // the first position at which the blocks before the cut are undone
  bool operator==(const ChainCut&) const = default;
};

// All positions at which no in-place chain is cut, first and last included. The last block has no
// forward, only the ops after the turn that need just what the first of them reads: the loss.
std::vector<ChainCut> chain_cuts(const Graph& graph, const ForwardFacts& facts);

// About how many storages the bundles of all positions hold together: the work of measuring a chain of all
// cuts is proportional to it.
int64_t bundle_sizes(const ForwardFacts& facts);

// At most `most` of these cuts: those with many bytes in their bundles go first, and no block grows
// far beyond the average in bytes made and in ops.
std::vector<ChainCut> fewer_cuts(const ForwardFacts& facts, std::vector<ChainCut> cuts,
                                 size_t most);

}  // namespace remat::detail
