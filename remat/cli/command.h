// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "remat/cli/exit_code.h"
#include "remat/core/graph.h"
#include "remat/core/plan.h"

namespace remat {

// What the sub-commands share. Each adds itself to the app; its callback leaves the exit code in
// `exit_code` and throws Error for what main reports as one line.

void add_plan_command(CLI::App& app, int& exit_code);
void add_explain_command(CLI::App& app, int& exit_code);
void add_verify_command(CLI::App& app, int& exit_code);

// Adds --json; the pointer target must outlive the app.
void add_json_option(CLI::App& command, std::string& path);
void add_budget_option(CLI::App& command, std::vector<std::string>& budgets, bool several);

// The table of strategies, for --help; and the check that goes with it: what is wrong with a name,
// or nothing.
std::string strategy_help();
std::string strategy_fault(const std::string& name);

// The message for the command line, which has its own name for the verb: "[plan] no" -> "no".
std::string without_verb(const std::string& message);

Graph load_graph(const std::string& path);
void write_json(const std::string& path, const nlohmann::json& json);

// Plans with a line of progress on standard error, if that is a terminal and it takes a second.
Plan plan_with_progress(const Graph& graph, PlanOptions options);

// One line on standard error: "remat plan: what went wrong", whatever a file's name may hold.
void report_error(const std::string& command, const std::string& message);

}  // namespace remat
