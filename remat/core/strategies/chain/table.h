// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/strategies/chain/blocks.h"

namespace remat::detail {

// What is done with a block of the chain, in order of time.
enum class ChainAction : uint8_t {
  pass,       // run it and keep only the bundle at its exit
  save,       // run it and keep one of its savings
  tape,       // run it for its tape only
  held_tape,  // the same, but what of the tape is in the exit's bundle is still there
  backward,   // undo it
};
struct ChainStep {
  ChainAction action;
  bool first;  // the block's first run: all of its ops
  const ChainBlock* block;
  size_t saving;  // save and backward: which of the block's
};

// The least time of re-runs with which blocks s ... t can be run and undone in m slots of memory,
// for all s, t and m. The bundle at the entry of s is there and not counted; the gradients at the
// exit of t are, and so is all that is made in between.
//
//     save s       run s, keep a saving    then best[s+1][t] in m - saving     then undo s
//     split at r   pass s ... r-1          then best[r][t] in m - bundle(r)    then below[s][r-1] in m
//     s = t        run s for its tape, undo it; or solve the finer chain that s stands for
//
// below[s][t] is best[s][t], or held[s][t] in m - bundle(t+1): the same with the bundle at the exit
// of t still there, which spares re-running t where its backward reads that bundle (rotor lets it
// go). The first pass is free (it happens anyway), so only what is run again is counted.
class ChainTable {
 public:
  // Of memory for each pair of blocks.
  static constexpr double kBytesPerSlot = 3 * sizeof(float);

  // `finer`, where given, holds for every block a table of the same unit over the finer chain that
  // the block stands for. All of them must outlive the table.
  ChainTable(const Chain& chain, int64_t unit_bytes, size_t slots,
             std::span<const ChainTable> finer = {});

  int64_t unit_bytes() const { return unit_bytes_; }
  size_t slots() const { return slots_; }
  // Re-run time for the whole chain; infinite where it does not fit.
  float time_ns(size_t slot) const { return row(best_, 0, chain_->blocks.size() - 1)[slot]; }
  // Demands a finite time_ns(slot).
  std::vector<ChainStep> steps(size_t slot) const;

 private:
  using Rows = std::vector<float>;  // by s, t and slot

  // One of the splits of a pair (s, t).
  struct Split {
    size_t at;
    size_t least_slot;
    size_t bundle_slots;
    float pass_ns;
  };
  template <typename Use>
  void for_each_split(size_t s, size_t t, Use use) const;

  bool first_run(size_t t) const { return chain_->turns && t + 1 == chain_->blocks.size(); }
  size_t row_start(size_t s, size_t t) const { return (t * (t + 1) / 2 + s) * (slots_ + 1); }
  const float* row(const Rows& rows, size_t s, size_t t) const {
    return rows.data() + row_start(s, t);
  }
  float* row(Rows& rows, size_t s, size_t t) const { return rows.data() + row_start(s, t); }
  size_t slots_needed(int64_t bytes) const;
  size_t slots_held(int64_t bytes, size_t cut) const;
  int64_t shared_bytes(size_t cut, size_t later) const { return shared_[cut * cuts_ + later]; }
  size_t bundle_slots(size_t s, size_t cut) const;
  size_t save_needs(size_t s, size_t t) const;
  float save_time(size_t s, size_t t, size_t saving) const;
  size_t tape_needs(size_t s, bool held) const;
  float tape_time(size_t s, bool held) const;

  void share_bundles();
  void fill_single(Rows& rows, size_t s, bool held);
  void fill(Rows& rows, size_t s, size_t t);
  void fill_below(size_t s, size_t t);
  void add_steps(const Rows& rows, size_t s, size_t t, size_t slot,
                 std::vector<ChainStep>& steps) const;
  void add_steps_below(size_t s, size_t t, size_t slot, std::vector<ChainStep>& steps) const;

  const Chain* chain_;
  std::span<const ChainTable> finer_;
  int64_t unit_bytes_;
  size_t slots_;
  size_t cuts_;
  std::vector<int64_t> shared_;  // by pair of cuts: bytes that both bundles hold
  Rows best_, held_, below_;
};

}  // namespace remat::detail
