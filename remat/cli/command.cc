// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "remat/cli/files.h"
#include "remat/cli/model_source.h"
#include "remat/cli/progress.h"
#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/units.h"

namespace remat {

void add_json_option(CLI::App& command, std::string& path) {
  command
      .add_option("--json", path,
                  "Write the result as JSON; - is standard output, and then "
                  "nothing else is written to it")
      ->type_name("FILE");
}

std::string budget_fault(const std::string& text) {
  try {
    parse_budget(text, 1);
    return {};
  } catch (const Error& error) {
    return without_verb(error.what());
  }
}

void add_move_options(CLI::App& command, MoveOptions& options) {
  command.add_flag("!--no-pack", options.pack, "No value is kept in fewer bytes while it is idle");
  command.add_flag("!--no-offload", options.offload, "No value is written to a disk while it is idle");
}

void add_depth_option(CLI::App& command, int& depth) {
  command
      .add_option("--depth", depth,
                  "Parts of a layer's name that count: layer1.0.conv2 has three; 0 is all")
      ->check(CLI::Range(0, 100))
      ->type_name("N")
      ->capture_default_str();
}

CLI::Option* add_budget_option(CLI::App& command, std::vector<std::string>& budgets, bool several) {
  CLI::Option* option = command.add_option(
      "--budget", budgets,
      several ? "Bytes with a unit (1.5GiB) or a share of the keep-all peak "
                "(50%); several with commas give a table"
              : "Bytes with a unit (1.5GiB) or a share of the keep-all peak (50%)");
  option->required()->type_name("B")->check(budget_fault, "");
  if (several) {
    // Without extra arguments: in `--budget 50% net.graph` the graph is not a budget.
    option->delimiter(',')->allow_extra_args(false);
  } else {
    option->expected(1);
  }
  return option;
}

bool check_outputs(const std::vector<const std::string*>& paths) {
  const auto count = std::count_if(paths.begin(), paths.end(),
                                   [](const std::string* path) { return *path == "-"; });
  if (count > 1) throw CLI::ValidationError("-", "standard output is for one file; give the others names");
  for (const std::string* path : paths) check_writable(*path);
  return count == 1;
}

std::string strategy_help() {
  std::string help;
  for (const Strategy& strategy : strategies()) {
    help += fmt::format("\n  {} - {}", strategy.name, strategy.summary);
  }
  return help;
}

std::string strategy_fault(const std::string& name) {
  std::string names;
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == name) return {};
    names += (names.empty() ? "" : ", ") + std::string(strategy.name);
  }
  return fmt::format("unknown strategy '{}'; expected one of {}", name, names);
}

std::string without_verb(const std::string& message) {
  const size_t end = message.find("] ");
  return message.starts_with('[') && end != std::string::npos ? message.substr(end + 2) : message;
}

Graph load_graph(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return parse_graph(text);
  } catch (const Error& error) {
    throw Error(shown_path(path) + ": " + without_verb(error.what()));
  }
}

void write_json(const std::string& path, const nlohmann::json& json) {
  write_file(path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void show_planning(PlanOptions& options, Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  // A search mostly ends well before its limit; with --orders there is no limit, but a number of orders.
  options.progress = [&progress, start, orders = options.max_orders,
                      seconds = options.time_limit_seconds](const PlanProgress& made) {
    if (!progress.wanted()) return;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    progress.show("planning",
                  orders > 0 ? static_cast<double>(made.orders) / static_cast<double>(orders)
                            : elapsed.count() / seconds,
                  fmt::format("of the time limit; {}: {} orders, best {} at {}", made.strategy, made.orders,
                              format_ns(made.best_time_ns), format_bytes(made.best_peak_bytes)));
  };
}

Plan plan_with_progress(const Graph& graph, PlanOptions options) {
  Progress progress;
  show_planning(options, progress);
  return plan(graph, options);
}

void report_error(const std::string& command, const std::string& message) {
  std::string line = command + ": " + without_verb(message);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  std::cerr << line << "\n";
}

}  // namespace remat
