// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "remat/core/graph.h"

namespace remat {

// The text form of a graph: bug reports, benchmark data and golden tests are written in it.
//
//     remat-graph 1
//     external <storage> <bytes> <role>
//     op <name> <phase> kind=<aten name> time_ns=<int> [workspace=<bytes>] [reads=a,b] [updates=c]
//        [creates=d:<bytes>,e:<bytes>] [effects=f,g] [reuse=d<a] [random] [once] [scope=<layer>]
//     output <storage>
//
// One item a line (an op too); `#` starts a comment line; blank lines are skipped. Anything else is
// an Error that gives the line, what was found and what was expected.
Graph parse_graph(std::string_view text);

// Deterministic and inverse to parse_graph: parse_graph(print_graph(g)) == g.
std::string print_graph(const Graph& graph);

}  // namespace remat
