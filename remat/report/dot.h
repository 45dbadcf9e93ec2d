// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

// Ops [first, end) of a graph.
struct OpRange {
  size_t first = 0;
  size_t end = 0;
  bool operator==(const OpRange&) const = default;
};

// "a:b", both included, each the name of an op or its number from 0; either may be left out, and "a" alone
// is that op. Nothing is the whole graph. Throws Error.
OpRange parse_op_range(const Graph& graph, std::string_view text);

// The ops of the range for Graphviz: ops by layer in boxes, storages as edges with their bytes, from the op
// that makes a value to those that use it. What comes from outside of the range, and what leaves it, is
// drawn as an ellipse. With the order of a plan, ops that run more than once say how often.
std::string graph_dot(const Graph& graph, const OpRange& range, const std::vector<OpId>& order = {});

}  // namespace remat
