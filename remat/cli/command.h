// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "remat/cli/exit_code.h"
#include "remat/cli/progress.h"
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
// Required, unless the caller says otherwise.
CLI::Option* add_budget_option(CLI::App& command, std::vector<std::string>& budgets, bool several);
void add_depth_option(CLI::App& command, int& depth);

// What is wrong with a budget, or nothing. It must be known before the graph is, so that a slip of
// the keyboard is a usage error; a share of one byte is as good as of any other number.
std::string budget_fault(const std::string& text);

// Before any work: throws Error if one of these files cannot be written, and a usage error if two
// of them are "-", standard output. Whether one is. An empty path is a file that nobody asked for.
bool check_outputs(const std::vector<const std::string*>& paths);

// The table of strategies, for --help; and the check that goes with it: what is wrong with a name,
// or nothing.
std::string strategy_help();
std::string strategy_fault(const std::string& name);

// The message for the command line, which has its own name for the verb: "[plan] no" -> "no".
std::string without_verb(const std::string& message);

Graph load_graph(const std::string& path);
void write_json(const std::string& path, const nlohmann::json& json);

// Lets a planner say how far it is.
void show_planning(PlanOptions& options, Progress& progress);

// Plans with a line of progress on standard error, if that is a terminal and it takes a second.
Plan plan_with_progress(const Graph& graph, PlanOptions options);

// One line on standard error: "remat plan: what went wrong", whatever a file's name may hold.
void report_error(const std::string& command, const std::string& message);

}  // namespace remat
