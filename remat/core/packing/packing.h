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
//       3 ┤    ┌───┐             item a: parts {0..1, 2}, {2..2, 3}, {3..4, 1}
//       2 ┤────┘ a └──┬────┐     item b: part  {3..5, 1}, at offset 1
//       1 ┤           │ b  │     (b would not fit at 1 if it started at tick 2)
//       0 ┤───────────┴────┘
//          0  1  2  3  4  5  tick
//
// Sizes have whatever unit the caller likes; `place` counts in multiples of the alignment.

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
  std::span<const Part> parts(size_t item) const {
    const size_t begin = item == 0 ? 0 : ends_[item - 1];
    return std::span(parts_).subspan(begin, ends_[item] - begin);
  }
  int32_t tick_count() const { return tick_count_; }  // one more than the last tick of any item

  // By tick: the sum of the sizes there. The largest is the least height any packing can have.
  std::vector<int64_t> load() const;

 private:
  std::vector<Part> parts_;   // item after item
  std::vector<size_t> ends_;  // by item: one past its last part
  int32_t tick_count_ = 0;
};

struct PackingOptions {
  // For all searches together; the greedy orders always finish. A node is a fixed amount of work,
  // some tenths of a microsecond.
  int64_t max_search_nodes = 4'000'000;
  double time_limit_seconds = 10.0;  // a safety net: what it cuts short does not repeat
  int64_t enough_height = 0;         // what is this low need not be lower
};

struct Packing {
  std::vector<int64_t> offset;  // by item
  int64_t height = 0;           // the least that holds every item
  int64_t lower_bound = 0;      // no packing is lower than this
  int64_t search_nodes = 0;     // spent after the greedy orders
};

// Stages, each only where the ones before it left waste, the cheap ones first:
//   1. greedy orders (orders.h), each item at its lowest free offset; then from both ends,
//      what stays to the last tick hanging from the top; then orders in which what did not fit comes
//      earlier;
//   2. an exact search (search.h) with likely neighbours glued first (glue.h);
//   3. sweeps outwards from the fullest tick (sweep.h), what they leave out repaired in
//      (repair.h);
//   4. from exact packings of a window around the peak that gets wider, the rest greedily or by repair;
//   5. the exact search on the problem as it is, which alone may prove that waste is needed;
//   6. the same for heights between what was found and what was not.
// Stops as soon as the height is the lower bound, or low enough, which is also what they aim at.
// Greedy takes time near-linear in the items; sweeps and the exact search are left out where there are
// too many of them. The same problem with the same options gives the same packing, unless the time
// limit strikes before the node limit does.
Packing pack(const PackingProblem& problem, const PackingOptions& options = {});

}  // namespace remat
