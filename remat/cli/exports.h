// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "remat/core/graph.h"
#include "remat/report/csv.h"
#include "remat/report/trace_json.h"

namespace remat {

// Files for the tools that people already have. Empty paths are files that nobody asked for.
struct Exports {
  std::string trace;
  std::string dot;
  std::string range;
  std::string csv;

  // The paths that may be "-".
  std::vector<const std::string*> files() const { return {&trace, &dot}; }
};

void add_trace_option(CLI::App& command, Exports& exports, const char* what);
void add_dot_options(CLI::App& command, Exports& exports);
void add_csv_option(CLI::App& command, Exports& exports);

// Throws the Error that write_csv would, as far as it can be known before any work.
void check_csv(const Exports& exports);

// Each writes what was asked for, if anything. They throw Error.
void write_trace(const Exports& exports, const Graph& graph, const std::vector<TracedStep>& steps);
void write_dot(const Exports& exports, const Graph& graph, const std::vector<OpId>& order);
// Into a folder, which is made if there is none: <name>.csv each.
void write_csv(const Exports& exports, const std::vector<CsvTable>& tables);

// The step as the plain framework runs it, for a trace.
TracedStep plain_step(const Graph& graph);

}  // namespace remat
