// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/graph.h"

namespace remat::testing {

// A random graph of two to six forward ops with every feature of the format, small enough for exact
// methods, and budgets from the least that any plan can need to almost everything.
struct SmallCase {
  Graph graph;
  std::vector<int64_t> budgets;
};
SmallCase small_case(uint64_t seed);

}  // namespace remat::testing
