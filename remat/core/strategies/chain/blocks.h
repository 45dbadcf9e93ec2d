// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/strategies/chain/cuts.h"

namespace remat::detail {

// What each block of a chain costs. Bytes leave out externals, values that are kept anyway, and the
// bundle at the block's entry unless said otherwise. Block b lies between cuts b and b + 1.
struct ChainBlock {
  ChainCut entry, exit;

  // What to re-run for the bundle at the exit (pass), for what backward reads (tape), and for what
  // backward reads while the bundle at the exit is still held and not counted (held_tape).
  struct Rerun {
    std::vector<OpId> ops;
    int64_t time_ns = 0;
    int64_t peak_bytes = 0;
  };
  Rerun pass, tape, held_tape;

  // A way to keep the bundle at the exit together with what backward reads, or with a part of that
  // and the rest made again when it is undone.
  struct Saving {
    int64_t bytes = 0;       // resident after the run
    int64_t undo_ns = 0;     // of what is run again for backward
    std::vector<OpId> undo;  // that, and the backward ops
    Rerun again;             // what to re-run for it
  };
  std::vector<Saving> savings;  // the whole tape first

  // The peak of a re-run that passes, with the entry's bundle counted until its last use in the
  // block.
  int64_t pass_through_bytes = 0;

  // Peaks of the first run, in which every op runs.
  int64_t first_pass_bytes = 0;
  int64_t first_pass_through_bytes = 0;
  int64_t first_save_bytes = 0;

  // Resident while blocks up to this one wait for backward: gradients, and what later blocks made
  // and earlier ones read.
  int64_t gradient_bytes = 0;
  int64_t backward_bytes = 0;       // peak of its backward, gradients and tape included
  int64_t held_backward_bytes = 0;  // the same with the exit's bundle held and not counted
  bool reads_exit = false;          // whether its backward reads any of that bundle
};

// A storage that is part of the bundle at cuts `first` to `last`.
struct BundleSpan {
  int32_t first = 0;
  int32_t last = 0;
  int64_t bytes = 0;
};

struct Chain {
  std::vector<ChainBlock> blocks;
  std::vector<BundleSpan> spans;
  bool turns = true;  // the last block is where forward ends, so it is run once only

  // Blocks from `begin` up to but not including `end`.
  Chain stretch(size_t begin, size_t end) const;
};

// Measures the blocks between the cuts with the memory model of `simulate`, `reuse` included.
// About linear in the graph.
Chain chain_blocks(const Graph& graph, const OrderCost& cost, const ForwardFacts& facts,
                   std::span<const ChainCut> cuts);

}  // namespace remat::detail
