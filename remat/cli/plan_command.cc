// SPDX-License-Identifier: Apache-2.0

// remat plan: a schedule for a graph, or for a model of the zoo, inside a budget.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "remat/cli/command.h"
#include "remat/cli/files.h"
#include "remat/cli/model_source.h"
#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/core/units.h"
#include "remat/report/plan_report.h"

namespace remat {
namespace {

struct PlanArguments {
  ModelOptions source;  // its `model` is a graph file, or a model of the zoo
  std::vector<std::string> budgets;
  std::vector<std::string> strategies = {"auto"};
  PlanOptions options;
  std::string schedule;
  std::string json;
};

std::vector<std::string> wanted_strategies(const PlanArguments& arguments) {
  const std::vector<std::string>& given = arguments.strategies;
  if (std::find(given.begin(), given.end(), "all") == given.end()) return given;
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

// A file comes first: a model's name is short, and a file of that name is somebody's intention.
Graph load_source(const ModelOptions& source) {
  std::error_code unknown;
  const bool file = source.model == "-" || std::filesystem::exists(source.model, unknown);
  if (!file && is_model(source.model)) return measured_graph(source);
  if (source.sizes_given()) {
    throw Error(shown_path(source.model) + (file ? " is a graph file, and its sizes are fixed; "
                                                 : " is neither a file nor a model; ") +
                "sizes are for a model");
  }
  try {
    return load_graph(source.model);
  } catch (const Error& error) {
    if (file || source.model.find('/') != std::string::npos) throw;
    throw Error(error.what() + not_a_model(source.model));
  }
}

int run(const PlanArguments& arguments) {
  if (arguments.json == "-" && arguments.schedule == "-") {
    throw CLI::ValidationError("--schedule", "standard output is taken by --json -");
  }
  const Graph graph = load_source(arguments.source);
  const std::string graph_name = name_of_file(arguments.source.model);
  const Baseline baseline = keep_all_baseline(graph);
  std::vector<int64_t> budgets;
  for (const std::string& text : arguments.budgets) {
    budgets.push_back(parse_budget(text, baseline.peak_bytes));
  }
  const std::vector<std::string> names = wanted_strategies(arguments);
  const bool single = budgets.size() * names.size() == 1;
  if (!single && !arguments.schedule.empty()) {
    throw CLI::ValidationError("--schedule", "expected one budget and one strategy, for one plan");
  }
  std::optional<Floor> least;  // of the graph, whatever the plan: found once
  std::vector<PlanReport> reports;
  Schedule schedule;
  for (const int64_t budget : budgets) {
    for (const std::string& name : names) {
      PlanOptions options = arguments.options;
      options.budget_bytes = budget;
      options.strategy = name;
      const auto start = std::chrono::steady_clock::now();
      const Plan made = plan_with_progress(graph, options);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      schedule = rewrite(graph, made.order);
      if (!least) least = floor(graph, made);
      PlanReport report = report_plan(graph, made, schedule, *least, budget);
      report.graph = graph_name;
      report.strategy = name;
      report.plan_seconds = took.count();
      reports.push_back(std::move(report));
    }
  }
  if (!arguments.schedule.empty() && reports.front().feasible) {
    write_file(arguments.schedule, print_schedule(schedule, graph));
  }
  if (!arguments.json.empty()) {
    nlohmann::json plans = nlohmann::json::array();
    for (const PlanReport& report : reports) plans.push_back(plan_json(report));
    write_json(arguments.json, single ? plans.front() : nlohmann::json{{"plans", plans}});
  }
  const bool quiet = arguments.json == "-" || arguments.schedule == "-";
  if (!single) {
    if (!quiet) write_file("-", plan_table(reports));
    return kDone;
  }
  const PlanReport& report = reports.front();
  if (!report.feasible) {
    report_error("remat plan", infeasible_message(report));
    return kInfeasible;
  }
  if (!quiet) write_file("-", plan_text(report));
  return kDone;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "Plan a step inside a budget");
  command
      ->add_option("graph", arguments->source.model,
                   "A graph file, - is standard input; or a model (see remat models), of which a step "
                   "is captured and measured")
      ->required()
      ->type_name("GRAPH|MODEL");
  add_budget_option(*command, arguments->budgets, true);
  command
      ->add_option("--strategy", arguments->strategies,
                   "How to decide; several with commas, or all, give a table:" + strategy_help())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check([](const std::string& name) { return name == "all" ? "" : strategy_fault(name); }, "")
      ->type_name("NAME");
  command->add_option("--every-k", arguments->options.every_k, "every_k: layers per segment")
      ->type_name("K");
  command
      ->add_option("--time-limit", arguments->options.time_limit_seconds,
                   "Seconds a search may take; it mostly needs a fraction of them")
      ->check(CLI::NonNegativeNumber)
      ->type_name("S")
      ->capture_default_str();
  command
      ->add_option("--moves", arguments->options.max_moves,
                   "Orders a search may look at; the time is not looked at then")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  command->add_option("--seed", arguments->options.seed, "Of the search: same seed, same plan")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--keep-order", arguments->options.keep_order,
                    "Recompute only: first runs stay in the order of the graph");
  command->add_flag("--placed", arguments->options.placed,
                    "Make the addresses fit too: externals + arena within the budget");
  command->add_option("--schedule", arguments->schedule, "Write the schedule; - is standard output")
      ->type_name("FILE");
  add_json_option(*command, arguments->json);
  add_size_options(*command, arguments->source);
  command->footer("Exits with 3 if the plan does not fit (one budget, one strategy).");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace remat
