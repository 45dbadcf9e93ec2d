// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/occupancy.h"

#include <algorithm>

namespace remat::detail {

void IntervalSet::insert(int64_t begin, int64_t end) {
  const auto from =
      std::partition_point(intervals_.begin(), intervals_.end(),
                           [begin](const Interval& interval) { return interval.end < begin; });
  auto to = from;
  while (to != intervals_.end() && to->begin <= end) {
    begin = std::min(begin, to->begin);
    end = std::max(end, to->end);
    ++to;
  }
  if (from == to) {
    intervals_.insert(from, {begin, end});
  } else {
    *from = {begin, end};
    intervals_.erase(from + 1, to);
  }
}

Occupancy::Occupancy(int32_t tick_count) {
  while (leaf_count_ < tick_count) leaf_count_ *= 2;
  nodes_.resize(2 * static_cast<size_t>(leaf_count_));
}

void Occupancy::clear() {
  for (Node& node : nodes_) {
    node.touched.clear();
    node.filled.clear();
  }
}

// The nodes that make up a range, bottom-up: the left border moves right past right children, the
// right border moves left past left children, until they meet.
void Occupancy::collect(const Part& part) {
  const auto avoid = [&](const IntervalSet& set) {
    if (!set.intervals().empty()) cursors_.push_back({&set, 0, part.size});
  };
  int32_t left = part.first + leaf_count_;
  int32_t right = part.last + leaf_count_ + 1;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) avoid(nodes_[static_cast<size_t>(left++)].touched);
    if (right % 2 == 1) avoid(nodes_[static_cast<size_t>(--right)].touched);
  }
  // Nodes within the range are below one of those above; only what fills a wider node is still new.
  const auto inside = [&](int32_t node, int32_t width) {
    const int32_t first = node * width - leaf_count_;
    return part.first <= first && first + width - 1 <= part.last;
  };
  int32_t low = part.first + leaf_count_;
  int32_t high = part.last + leaf_count_;
  for (int32_t width = 1; low >= 1; low /= 2, high /= 2, width *= 2) {
    if (!inside(low, width)) avoid(nodes_[static_cast<size_t>(low)].filled);
    if (high != low && !inside(high, width)) avoid(nodes_[static_cast<size_t>(high)].filled);
  }
}

int64_t Occupancy::lowest_fit(std::span<const Part> parts, int64_t limit) {
  cursors_.clear();
  for (const Part& part : parts) collect(part);
  int64_t offset = 0;
  for (size_t quiet = 0, c = 0; quiet < cursors_.size() && offset <= limit; ++quiet) {
    Cursor& cursor = cursors_[c];
    const auto& intervals = cursor.set->intervals();
    const int64_t before = offset;
    while (cursor.next < intervals.size() && intervals[cursor.next].begin < offset + cursor.size) {
      offset = std::max(offset, intervals[cursor.next].end);
      ++cursor.next;
    }
    if (offset != before) quiet = 0;
    if (++c == cursors_.size()) c = 0;
  }
  return offset;
}

int64_t Occupancy::highest_fit(std::span<const Part> parts, int64_t limit) {
  cursors_.clear();
  for (const Part& part : parts) collect(part);
  int64_t offset = limit;
  for (size_t quiet = 0, c = 0; quiet < cursors_.size() && offset >= 0; ++quiet) {
    Cursor& cursor = cursors_[c];
    const auto& intervals = cursor.set->intervals();
    const int64_t before = offset;
    while (cursor.next < intervals.size()) {
      const auto& [begin, end] = intervals[intervals.size() - 1 - cursor.next];
      if (end <= offset) break;
      offset = std::min(offset, begin - cursor.size);
      ++cursor.next;
    }
    if (offset != before) quiet = 0;
    if (++c == cursors_.size()) c = 0;
  }
  return offset;
}

void Occupancy::insert(std::span<const Part> parts, int64_t offset) {
  for (const Part& part : parts) insert(part, offset);
}

void Occupancy::insert(const Part& part, int64_t offset) {
  const int64_t end = offset + part.size;
  const auto fill = [&](int32_t n) {
    Node& node = nodes_[static_cast<size_t>(n)];
    node.filled.insert(offset, end);
    node.touched.insert(offset, end);
  };
  int32_t left = part.first + leaf_count_;
  int32_t right = part.last + leaf_count_ + 1;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) fill(left++);
    if (right % 2 == 1) fill(--right);
  }
  int32_t low = part.first + leaf_count_;
  int32_t high = part.last + leaf_count_;
  for (; low >= 1; low /= 2, high /= 2) {
    nodes_[static_cast<size_t>(low)].touched.insert(offset, end);
    if (high != low) nodes_[static_cast<size_t>(high)].touched.insert(offset, end);
  }
}

}  // namespace remat::detail
