// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace remat {

// The reuse rule, in one place for everyone but `verify`, which checks it by itself.
//
//     op relu ... reads=a creates=d:8 reuse=d<a        d takes the place of a where no later step needs a
//
// An op may list several pairs of a result and a source. They are looked at in that order; a pair is
// taken if the source ends with the op and neither the result nor the source is in a pair taken before.
// `Pair` is anything with the members `result` and `source`: storages, values or copies.

// The bytes that are counted once while the op runs, if the result takes the place of the source.
constexpr int64_t shared_bytes(int64_t result_bytes, int64_t source_bytes) {
  return std::min(result_bytes, source_bytes);
}

// Whether only one of two pairs of an op can be taken.
template <typename Pair>
constexpr bool exclude_each_other(const Pair& a, const Pair& b) {
  return a.result == b.result || a.source == b.source;
}

// The pairs that are taken, into `taken`, which the caller keeps so that nothing is allocated again.
// ends(pair): whether the source ends with the op.
template <typename Pair, typename Ends>
void take_places(std::span<const Pair> pairs, const Ends& ends, std::vector<Pair>& taken) {
  taken.clear();
  for (const Pair& pair : pairs) {
    if (!ends(pair)) continue;
    const auto excludes = [&](const Pair& other) { return exclude_each_other(pair, other); };
    if (std::any_of(taken.begin(), taken.end(), excludes)) continue;
    taken.push_back(pair);
  }
}

}  // namespace remat
