// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "remat/core/graph.h"

namespace remat {

// Ops whose first runs stay in the order of the graph: the generator is one sequence, collectives of
// several processes pair up by their order, and effects happen one after the other. Each class keeps
// its order by itself: a random op may pass a `once` op.
inline constexpr std::array<const char*, 3> kOrderClasses = {"random ops", "once ops",
                                                             "ops with effects"};

// Whether the op is in a class, by its number in kOrderClasses.
inline bool in_order_class(const Op& op, size_t order_class) {
  const std::array<bool, kOrderClasses.size()> in = {op.random, op.once, !op.effects.empty()};
  return in[order_class];
}

// Whether there is a class with both of them in it.
inline bool keep_mutual_order(const Op& a, const Op& b) {
  for (size_t c = 0; c < kOrderClasses.size(); ++c) {
    if (in_order_class(a, c) && in_order_class(b, c)) return true;
  }
  return false;
}

}  // namespace remat
