// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/chain/table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "remat/core/error.h"

namespace remat::detail {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr double kGolden = 0.6180339887498949;

float as_float(int64_t time_ns) { return static_cast<float>(time_ns); }

}  // namespace

ChainTable::ChainTable(const Chain& chain, int64_t unit_bytes, size_t slots,
                       std::span<const ChainTable> finer)
    : chain_(&chain),
      finer_(finer),
      unit_bytes_(unit_bytes),
      slots_(slots),
      cuts_(chain.blocks.size() + 1) {
  const size_t n = chain.blocks.size();
  share_bundles();
  for (Rows* rows : {&best_, &held_, &below_}) rows->resize(row_start(0, n), kInfinite);
  for (size_t t = 0; t < n; ++t) {
    for (size_t s = t + 1; s-- > 0;) {
      for (Rows* rows : {&best_, &held_}) {
        if (rows == &held_ && !chain.blocks[t].reads_exit) continue;
        if (s == t) {
          fill_single(*rows, s, rows == &held_);
        } else {
          fill(*rows, s, t);
        }
      }
      fill_below(s, t);
    }
  }
}

// shared[i][j]: bytes of the spans that hold both i and j, from counts at their corners.
void ChainTable::share_bundles() {
  shared_.resize(cuts_ * cuts_, 0);
  for (const BundleSpan& span : chain_->spans) {
    shared_[static_cast<size_t>(span.first) * cuts_ + static_cast<size_t>(span.last)] += span.bytes;
  }
  for (size_t i = 0; i < cuts_; ++i) {
    for (size_t j = cuts_; j-- > 0;) {
      int64_t& sum = shared_[i * cuts_ + j];
      if (i > 0) sum += shared_[(i - 1) * cuts_ + j];
      if (j + 1 < cuts_) sum += shared_[i * cuts_ + j + 1];
      if (i > 0 && j + 1 < cuts_) sum -= shared_[(i - 1) * cuts_ + j + 1];
    }
  }
}

size_t ChainTable::slots_needed(int64_t bytes) const {
  return static_cast<size_t>((std::max<int64_t>(bytes, 0) + unit_bytes_ - 1) / unit_bytes_);
}

// What is held adds up over many blocks, so always rounding up, or to the nearest, would add up
// too. Up or down in golden-ratio turns keeps the sum over any stretch right; multiples of the unit
// stay exact.
size_t ChainTable::slots_held(int64_t bytes, size_t cut) const {
  const int64_t whole = bytes / unit_bytes_;
  const double rest = static_cast<double>(bytes % unit_bytes_) / static_cast<double>(unit_bytes_);
  const double turn = static_cast<double>(cut + 1) * kGolden;
  const bool up = rest + (turn - std::floor(turn)) >= 1.0;
  return static_cast<size_t>(whole + (up ? 1 : 0));
}

size_t ChainTable::save_needs(size_t s, size_t t) const {
  const ChainBlock& block = chain_->blocks[s];
  const int64_t run =
      first_run(t) ? block.first_save_bytes : block.savings.front().again.peak_bytes;
  return slots_needed(std::max(chain_->blocks[t].gradient_bytes + run, block.backward_bytes));
}

float ChainTable::save_time(size_t s, size_t t, size_t saving) const {
  const ChainBlock::Saving& chosen = chain_->blocks[s].savings[saving];
  return as_float(chosen.undo_ns + (first_run(t) ? 0 : chosen.again.time_ns));
}

size_t ChainTable::tape_needs(size_t s, bool held) const {
  const ChainBlock& block = chain_->blocks[s];
  const int64_t run = first_run(s) ? block.first_save_bytes
                      : held       ? block.held_tape.peak_bytes
                                   : block.tape.peak_bytes;
  return slots_needed(std::max(block.gradient_bytes + run,
                               held ? block.held_backward_bytes : block.backward_bytes));
}

float ChainTable::tape_time(size_t s, bool held) const {
  const ChainBlock& block = chain_->blocks[s];
  if (first_run(s)) return 0;
  return as_float(held ? block.held_tape.time_ns : block.tape.time_ns);
}

void ChainTable::fill_single(Rows& rows, size_t s, bool held) {
  float* best = row(rows, s, s);
  for (size_t m = tape_needs(s, held); m <= slots_; ++m) best[m] = tape_time(s, held);
  if (finer_.empty()) return;
  const ChainTable& finer = finer_[s];
  const float* of_finer =
      finer.row(held ? finer.held_ : finer.best_, 0, finer.chain_->blocks.size() - 1);
  for (size_t m = 0; m <= slots_; ++m) best[m] = std::min(best[m], of_finer[m]);
}

// What the bundle at a cut adds to that at the entry of s.
size_t ChainTable::bundle_slots(size_t s, size_t cut) const {
  return slots_held(shared_bytes(cut, cut) - shared_bytes(s, cut), cut);
}

template <typename Use>
void ChainTable::for_each_split(size_t s, size_t t, Use use) const {
  const bool first = first_run(t);
  const int64_t gradients = chain_->blocks[t].gradient_bytes;
  int64_t peak = 0, time = 0;
  for (size_t at = s + 1; at <= t; ++at) {
    const ChainBlock& passed = chain_->blocks[at - 1];
    if (at - 1 == s) {
      peak = first ? passed.first_pass_bytes : passed.pass.peak_bytes;
    } else {
      const int64_t through = first ? passed.first_pass_through_bytes : passed.pass_through_bytes;
      peak = std::max(peak, through - shared_bytes(s, at));
    }
    if (!first) time += passed.pass.time_ns;
    const size_t bundle = bundle_slots(s, at);
    const size_t least = std::max(slots_needed(gradients + peak), bundle);
    if (least > slots_) continue;
    use(Split{at, least, bundle, as_float(time)});
  }
}

void ChainTable::fill(Rows& rows, size_t s, size_t t) {
  float* best = row(rows, s, t);
  const ChainBlock& block = chain_->blocks[s];
  const float* rest = row(rows, s + 1, t);
  for (size_t i = 0; i < block.savings.size(); ++i) {
    const size_t saved = slots_held(block.savings[i].bytes, s);
    const float time = save_time(s, t, i);
    for (size_t m = std::max(save_needs(s, t), saved); m <= slots_; ++m) {
      best[m] = std::min(best[m], time + rest[m - saved]);
    }
  }
  for_each_split(s, t, [&](const Split& split) {
    const float* after = row(rows, split.at, t);
    const float* before = row(below_, s, split.at - 1);
    for (size_t m = split.least_slot; m <= slots_; ++m) {
      const float time = split.pass_ns + after[m - split.bundle_slots] + before[m];
      best[m] = time < best[m] ? time : best[m];
    }
  });
}

void ChainTable::fill_below(size_t s, size_t t) {
  float* below = row(below_, s, t);
  std::copy_n(row(best_, s, t), slots_ + 1, below);
  const size_t bundle = bundle_slots(s, t + 1);
  const float* held = row(held_, s, t);
  for (size_t m = bundle; m <= slots_; ++m) below[m] = std::min(below[m], held[m - bundle]);
}

std::vector<ChainStep> ChainTable::steps(size_t slot) const {
  std::vector<ChainStep> steps;
  add_steps(best_, 0, chain_->blocks.size() - 1, slot, steps);
  return steps;
}

// The decisions are found again from the times: one look at each split of the few pairs that occur.
void ChainTable::add_steps(const Rows& rows, size_t s, size_t t, size_t slot,
                           std::vector<ChainStep>& steps) const {
  const ChainBlock& block = chain_->blocks[s];
  const float best = row(rows, s, t)[slot];
  const bool first = first_run(t);
  const bool held = &rows == &held_;
  REMAT_ASSERT(best < kInfinite);
  if (s == t) {
    if (slot < tape_needs(s, held) || best < tape_time(s, held)) {
      const ChainTable& finer = finer_[s];
      finer.add_steps(held ? finer.held_ : finer.best_, 0, finer.chain_->blocks.size() - 1, slot,
                      steps);
      return;
    }
    steps.push_back({held ? ChainAction::held_tape : ChainAction::tape, first, &block, 0});
    steps.push_back({ChainAction::backward, true, &block, 0});
    return;
  }
  for (size_t i = 0; i < block.savings.size(); ++i) {
    const size_t saved = slots_held(block.savings[i].bytes, s);
    if (slot < std::max(save_needs(s, t), saved)) continue;
    if (save_time(s, t, i) + row(rows, s + 1, t)[slot - saved] != best) continue;
    steps.push_back({ChainAction::save, first, &block, i});
    add_steps(rows, s + 1, t, slot - saved, steps);
    steps.push_back({ChainAction::backward, true, &block, i});
    return;
  }
  Split chosen{};
  for_each_split(s, t, [&](const Split& split) {
    if (chosen.at != 0 || slot < split.least_slot) return;
    const float after = row(rows, split.at, t)[slot - split.bundle_slots];
    if (split.pass_ns + after + row(below_, s, split.at - 1)[slot] == best) chosen = split;
  });
  REMAT_ASSERT(chosen.at != 0);
  for (size_t b = s; b < chosen.at; ++b) {
    steps.push_back({ChainAction::pass, first, &chain_->blocks[b], 0});
  }
  add_steps(rows, chosen.at, t, slot - chosen.bundle_slots, steps);
  add_steps_below(s, chosen.at - 1, slot, steps);
}

void ChainTable::add_steps_below(size_t s, size_t t, size_t slot,
                                 std::vector<ChainStep>& steps) const {
  const bool plain = row(below_, s, t)[slot] == row(best_, s, t)[slot];
  add_steps(plain ? best_ : held_, s, t, plain ? slot : slot - bundle_slots(s, t + 1), steps);
}

}  // namespace remat::detail
