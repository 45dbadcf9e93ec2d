// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace remat {

// The pure packing problem under `place`: items with fixed times look for offsets.
//
// An *item* is a row of *parts*; a part takes `size` units during the ticks first ... last. The
// parts of one item are apart in time and share the item's offset. Most items have one part; a
// chain of reuse has one for each change of its size:
//
//     offset
//       3 ┤      ┌──┐
//       2 ┤──────┘  ├────────┐      item a: parts {0..1, 2}, {2..2, 3}, {3..4, 1}
//         │    a    │   b    │      item b: part  {3..5, 1}, at offset 1
//       1 ┤         └─────┬──┘      (b would not fit at 1 if it started at tick 2)
//         │               │
//       0 ┴───────────────┴────
//          0  1  2  3  4  5  tick
//
// The caller chooses the unit of sizes; `place` counts in multiples of the alignment.

struct Part {
  int32_t first = 0;  // ticks, both included
  int32_t last = 0;
  int64_t size = 0;  // more than 0
  bool operator==(const Part&) const = default;
};

class PackingProblem {
 public:
  // Parts in order of time, at least one, none touching a tick of another. Returns the item's
  // number.
  size_t add(std::span<const Part> parts);
  size_t add(const Part& part) { return add(std::span(&part, 1)); }

  size_t item_count() const { return ends_.size(); }
  int32_t tick_count() const { return tick_count_; }  // one more than the last tick of any item

  // What there is to know about one item.
  std::span<const Part> parts(size_t item) const {
    const size_t begin = item == 0 ? 0 : ends_[item - 1];
    return std::span(parts_).subspan(begin, ends_[item] - begin);
  }
  int32_t first_tick(size_t item) const { return parts(item).front().first; }
  int32_t last_tick(size_t item) const { return parts(item).back().last; }
  int64_t size(size_t item) const;  // the largest of its parts
  double area(size_t item) const;   // size times ticks, summed over its parts
  // Alive at the last tick of all, as gradients are. Such items are placed from the top down and the
  // others from the bottom up, so that the free space between them stays in one piece.
  bool stays(size_t item) const { return last_tick(item) + 1 == tick_count_; }

  // By tick: the sum of the sizes there.
  std::vector<int64_t> load() const;
  int64_t largest_load() const;  // the least height any packing can have
  int32_t fullest_tick() const;  // the first one with the largest load; 0 without items

 private:
  std::vector<Part> parts_;   // item after item
  std::vector<size_t> ends_;  // by item: one past its last part
  int32_t tick_count_ = 0;
};

// An answer, whole or in part: offsets by item, kNotPlaced where the item has none yet.
inline constexpr int64_t kNotPlaced = -1;
using Offsets = std::vector<int64_t>;

// The top of the highest item that is placed.
int64_t height_of(const PackingProblem& problem, const Offsets& offsets);

// The same problem with fewer ticks: only a tick at which something ends, and before which something
// has started since the last such tick, can hold a largest set of items. The others are left out, and
// items overlap exactly when they did before.
PackingProblem without_idle_ticks(const PackingProblem& problem);

}  // namespace remat
