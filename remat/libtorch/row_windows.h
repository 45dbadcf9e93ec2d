// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>

#include "remat/libtorch/trace.h"

// Tensors by rows of their first dimension, for those who take ops apart.
namespace remat::detail {

// Below this, tiles would be more work for planners than they save.
inline constexpr int64_t kLargeBytes = int64_t{32} << 20;
inline constexpr int64_t kTileBytes = int64_t{8} << 20;

inline int64_t elements(const Window& view) {
  return std::accumulate(view.sizes.begin(), view.sizes.end(), int64_t{1}, std::multiplies());
}

inline int64_t bytes_of(const Window& view) {
  return elements(view) * static_cast<int64_t>(c10::elementSize(view.dtype));
}

// Row after row without gaps, from the start of the storage.
inline bool is_plain(const Window& view) {
  int64_t expected = 1;
  for (size_t i = view.sizes.size(); i-- > 0;) {
    if (view.strides[i] != expected) {
      return false;
    }
    expected *= view.sizes[i];
  }
  return view.offset == 0 && !view.sizes.empty() && !view.conjugated && !view.negated;
}

// The same, from anywhere.
inline bool is_plain_part(Window view) {
  view.offset = 0;
  return is_plain(view);
}

inline bool among(const std::vector<StorageNumber>& numbers, StorageNumber number) {
  return std::ranges::find(numbers, number) != numbers.end();
}

// The request that its one result answers to.
auto request_for_result(auto& op) { return std::ranges::find(op.allocations, 0, &Allocation::result); }

// Whether `other`, standing between, would see that `op` runs later, or be seen by it.
inline bool disturb(const SeenOp& op, const SeenOp& other) {
  const auto touches = [](const std::vector<StorageNumber>& numbers, const SeenOp& writer) {
    return std::ranges::any_of(numbers, [&](StorageNumber number) {
      return among(writer.updates, number) || among(writer.effects, number);
    });
  };
  return touches(op.reads, other) || touches(op.updates, other) || touches(other.reads, op);
}

}  // namespace remat::detail
