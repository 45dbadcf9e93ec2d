// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/packing/problem.h"

namespace remat::detail {

// A packing that is filled from the bottom up, as fit_exactly builds it; every step can be taken back.
//
//     height ┬╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┬
//            │      ┌───┐     │      top: by tick, of what is placed there.
//      level ┤╌╌╌╌╌╌│   │╌╌╌╌╌│      level: by tick, the least base of the items still to come there.
//            │▒▒▒▒▒▒│   │▒▒▒▒▒│      Between the two nothing can be placed any more: it is lost.
//        top ├──────┘   └─────┤      slack: by tick, how much of the height may still be lost.
//            └────────────────┴▶ tick
//
// `base` is, by item not yet placed, a lower bound of its offset.
class Filling {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  Filling(const PackingProblem& problem, int64_t height);

  // Computes the levels of the ticks begin ... end-1.
  enum class Outlook : uint8_t { dead, done, open };
  Outlook look(int32_t begin, int32_t end);

  // The tick on whose level an item must be placed next, and whether all of its items may be refused
  // it instead; as of the last look.
  struct Choice {
    int32_t tick = -1;
    bool may_skip = false;
  };
  Choice choose(int32_t begin, int32_t end) const;
  // The items that can be placed on the level of a tick.
  std::vector<int32_t> candidates(int32_t tick) const;

  // Places the item on its base.
  void put(int32_t item);
  // No item of `tick` may be placed on its level: each goes at least to the lowest top that it might
  // find support on. False if one of them then exceeds the height.
  bool skip(int32_t tick);
  // A choice must be made at this tick: remembers the height that would allow to skip it as well.
  void note_forced(int32_t tick) { dead_end(tick, lost(tick) + 1); }

  // Whether items that are left are alive both at `tick` and at the next one.
  bool crossed_after(int32_t tick) const { return crossing_[at(tick)] > 0; }

  size_t mark() const { return trail_.size(); }
  void undo(size_t mark);

  const Offsets& offsets() const { return base_; }         // once everything is placed
  int64_t least_height_needed() const { return needed_; }  // with less, every dead end stays one
  // Ticks and items looked at since the last call, in whole units.
  int64_t take_looks(int64_t unit);

 private:
  struct Cover {
    int32_t item;
    int64_t size;
  };
  struct Undo {
    enum Kind : uint8_t { top, slack, top_item, base, placed } kind;
    int32_t index;
    int64_t old;
  };

  static size_t at(int32_t i) { return static_cast<size_t>(i); }
  int64_t lost(int32_t tick) const { return level_[at(tick)] - top_[at(tick)]; }
  void dead_end(int32_t tick, int64_t loss);
  bool find_level(int32_t tick);
  int64_t lowest_support(int32_t item, int64_t above);
  bool supported(int32_t item) const;
  bool same_lifetime(int32_t a, int32_t b) const;
  void count_in(size_t item, int32_t sign);
  template <typename T>
  void set(Undo::Kind kind, std::vector<T>& values, int32_t index, T value);

  const PackingProblem& problem_;
  int64_t height_;
  int64_t needed_ = kNever;
  int64_t looks_ = 0;
  std::vector<std::vector<Cover>> covers_;  // by tick
  std::vector<int32_t> crossing_;           // by tick: items left that are at it and at the next
  std::vector<int32_t> left_;               // by tick: items left
  std::vector<int32_t> top_item_;           // by tick: the item that ends at the top; -1: none
  std::vector<int64_t> level_;              // by tick, as of the last look
  std::vector<int32_t> choices_;            // by tick: items whose base is the level
  std::vector<int64_t> top_;                // by tick
  std::vector<int64_t> slack_;              // by tick
  Offsets base_;                            // by item; the offset once it is placed
  std::vector<char> placed_;                // by item
  std::vector<Undo> trail_;
  std::vector<Cover> raised_;
};

}  // namespace remat::detail
