// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/packing/problem.h"

namespace remat::detail {

// Disjoint intervals of offsets, in order; those that touch are one.
class IntervalSet {
 public:
  struct Interval {
    int64_t begin;
    int64_t end;
  };

  void insert(int64_t begin, int64_t end);
  void clear() { intervals_.clear(); }
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  std::vector<Interval> intervals_;
};

// What is taken, by tick and offset: finds the lowest offset at which an item fits.
//
// A segment tree over the ticks. A node keeps the offsets that are taken at *some* of its ticks
// (`touched`) and those taken by parts that fill its range (`filled`). What is taken somewhere
// in first ... last is then the union of few sets: `touched` of the nodes that make up the range,
// `filled` of the nodes above them. A good packing has few holes, so the sets stay short however
// many items there are, and an item costs about the square of the logarithm of the ticks.
class Occupancy {
 public:
  explicit Occupancy(int32_t tick_count);

  // The lowest offset where all parts fit; some number above `limit` if there is none up to it.
  int64_t lowest_fit(std::span<const Part> parts, int64_t limit);
  // The highest offset up to `limit` where all parts fit; some negative number if there is none.
  int64_t highest_fit(std::span<const Part> parts, int64_t limit);
  void insert(std::span<const Part> parts, int64_t offset);
  void clear();

 private:
  struct Node {
    IntervalSet touched;
    IntervalSet filled;
  };
  // A set that the item must avoid, and how many of its intervals were read, from below or above.
  struct Cursor {
    const IntervalSet* set;
    size_t next;
    int64_t size;
  };

  void collect(const Part& part);
  void insert(const Part& part, int64_t offset);

  int32_t leaf_count_ = 1;
  std::vector<Node> nodes_;  // 1 is the root, children of n are 2n and 2n+1
  std::vector<Cursor> cursors_;
};

}  // namespace remat::detail
