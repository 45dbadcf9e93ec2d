// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "remat/core/graph.h"

namespace remat::bench {

struct NamedGraph {
  std::string_view name;         // of the file bench/graphs/<name>.graph
  std::string_view description;  // one line
  Graph (*make)();
  bool committed = true;  // false: too large for git, written by make_graphs
};

// From small to large. Making one takes from a millisecond to a second.
std::span<const NamedGraph> named_graphs();

// Null if there is none.
const NamedGraph* graph_named(std::string_view name);

// What the given order needs with nothing recomputed and without reuse, as the plain framework
// does.
struct KeepAll {
  int64_t peak_bytes = 0;
  int64_t activation_bytes = 0;  // the part of the peak that is held for backward
  int64_t time_ns = 0;
};
KeepAll keep_all(const Graph& graph);

// One row of the table in bench/graphs/README.md, and its head.
std::string table_head();
std::string table_row(const NamedGraph& named, const Graph& graph);

}  // namespace remat::bench
