// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/exports.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "remat/cli/files.h"
#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "remat/report/dot.h"

namespace remat {
namespace {

const char* const kGroup = "For other tools";

[[noreturn]] void fail_at_folder(const std::string& folder, const std::error_code& fault) {
  throw Error("cannot make the folder " + folder + ": " + fault.message() +
              "; --csv takes a folder, in which each table is a file");
}

}  // namespace

void add_trace_option(CLI::App& command, Exports& exports, const char* what) {
  command.add_option("--trace", exports.trace, what)->type_name("FILE")->group(kGroup);
}

void add_dot_options(CLI::App& command, Exports& exports) {
  CLI::Option* dot =
      command.add_option("--dot", exports.dot, "Write the graph for Graphviz; - is standard output")
          ->type_name("FILE")
          ->group(kGroup);
  command
      .add_option("--range", exports.range,
                  "With --dot, only these ops: a:b, both included, by name or number from 0")
      ->needs(dot)
      ->type_name("RANGE")
      ->group(kGroup);
}

void add_csv_option(CLI::App& command, Exports& exports) {
  command.add_option("--csv", exports.csv, "Write every table as a CSV file into this folder")
      ->type_name("FOLDER")
      ->group(kGroup);
}

void write_trace(const Exports& exports, const Graph& graph, const std::vector<TracedStep>& steps) {
  if (!exports.trace.empty()) write_file(exports.trace, trace_json(graph, steps));
}

void write_dot(const Exports& exports, const Graph& graph, const std::vector<OpId>& order) {
  if (exports.dot.empty()) return;
  write_file(exports.dot, graph_dot(graph, parse_op_range(graph, exports.range), order));
}

void check_csv(const Exports& exports) {
  if (exports.csv.empty()) return;
  // What there is of the path so far must be a folder in which more can be made.
  std::error_code unknown;
  std::filesystem::path there = std::filesystem::absolute(exports.csv, unknown);
  while (!std::filesystem::exists(there, unknown) && there.has_relative_path()) {
    there = there.parent_path();
  }
  if (!std::filesystem::is_directory(there, unknown)) {
    fail_at_folder(exports.csv, std::make_error_code(std::errc::not_a_directory));
  }
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    fail_at_folder(exports.csv, std::error_code(errno, std::generic_category()));
  }
}

void write_csv(const Exports& exports, const std::vector<CsvTable>& tables) {
  if (exports.csv.empty()) return;
  std::error_code fault;
  std::filesystem::create_directories(exports.csv, fault);
  if (fault) fail_at_folder(exports.csv, fault);
  for (const CsvTable& table : tables) {
    write_file(std::filesystem::path(exports.csv) / (table.name + ".csv"), table.text);
  }
}

TracedStep plain_step(const Graph& graph) {
  return {"plain: everything kept",
          planned_calls(graph, rewrite(graph, given_order(graph), {.reuse = false}))};
}

}  // namespace remat
