// SPDX-License-Identifier: Apache-2.0

// remat plan: a schedule for a graph, or for a model of the zoo, inside a budget.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "remat/cli/command.h"
#include "remat/cli/exports.h"
#include "remat/cli/files.h"
#include "remat/cli/model_source.h"
#include "remat/cli/page_output.h"
#include "remat/cli/terminal.h"
#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/core/plan_file.h"
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
  std::string save;
  std::string json;
  PageOutput page;
  Exports exports;
};

std::vector<std::string> wanted_strategies(const PlanArguments& arguments) {
  const std::vector<std::string>& given = arguments.strategies;
  if (std::find(given.begin(), given.end(), "all") == given.end()) return given;
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

// A file comes first: a model's name is short, and a file of that name is somebody's intention.
MeasuredGraph load_source(const ModelOptions& source) {
  std::error_code unknown;
  const bool file = source.model == "-" || std::filesystem::exists(source.model, unknown);
  if (!file && is_model(source.model)) return measured_graph(source);
  if (source.sizes_given()) {
    throw Error(shown_path(source.model) + (file ? " is a graph file, and its sizes are fixed; "
                                                 : " is neither a file nor a model; ") +
                "sizes, optimizers and a folder to offload to are for a model");
  }
  try {
    return {load_graph(source.model), {std::string(library_version()), "none", {}}, {}};
  } catch (const Error& error) {
    if (file || source.model.find('/') != std::string::npos) throw;
    throw Error(error.what() + not_a_model(source.model));
  }
}

void save(const std::string& path, MeasuredGraph source, const Plan& made, const Schedule& schedule,
          int64_t budget_bytes) {
  SavedCourse& course = source.course;
  course.budget_bytes = budget_bytes;
  course.graph = std::move(source.graph);
  course.plan = made;
  course.schedule = schedule;
  source.origin.courses = {std::move(course)};
  write_file(path, print_plan_file(source.origin));
}

// The plan that other tools show, whether it fits or not.
void write_plan(const Exports& exports, const Graph& graph, const std::vector<OpId>& order,
                const Schedule& schedule, int64_t budget_bytes) {
  write_trace(exports, graph,
              {{"planned inside " + format_bytes(budget_bytes), planned_calls(graph, schedule)},
               plain_step(graph)});
  write_dot(exports, graph, order);
}

int run(const PlanArguments& arguments) {
  const bool quiet = check_outputs(
      {&arguments.json, &arguments.schedule, &arguments.save, &arguments.page.html,
       &arguments.exports.trace, &arguments.exports.dot});
  check_csv(arguments.exports);
  MeasuredGraph source = load_source(arguments.source);
  source.graph = with_moves(source.graph, arguments.source.moves.pack, arguments.source.moves.offload);
  const Graph& graph = source.graph;
  const std::string graph_name = name_of_file(arguments.source.model);
  const Baseline baseline = keep_all_baseline(graph);
  std::vector<int64_t> budgets;
  for (const std::string& text : arguments.budgets) {
    budgets.push_back(parse_budget(text, baseline.peak_bytes));
  }
  const std::vector<std::string> names = wanted_strategies(arguments);
  const bool single = budgets.size() * names.size() == 1;
  for (const auto& [option, path] : {std::pair("--schedule", &arguments.schedule),
                                     std::pair("--save", &arguments.save),
                                     std::pair("--html", &arguments.page.html),
                                     std::pair("--trace", &arguments.exports.trace),
                                     std::pair("--dot", &arguments.exports.dot)}) {
    if (!single && !path->empty()) {
      throw CLI::ValidationError(option, "expected one budget and one strategy, for one plan");
    }
  }
  std::optional<Floor> least;  // of the graph, whatever the plan: found once
  std::vector<PlanReport> reports;
  Plan made;
  nlohmann::json details = nlohmann::json::object();
  Schedule schedule;
  std::vector<OpId> order;
  for (const int64_t budget : budgets) {
    for (const std::string& name : names) {
      PlanOptions options = arguments.options;
      options.budget_bytes = budget;
      options.strategy = name;
      options.placed = options.placed || !arguments.save.empty();  // addresses are part of the file
      const auto start = std::chrono::steady_clock::now();
      made = plan_with_progress(graph, options);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      schedule = rewrite(graph, made.order);
      order = made.order;
      if (!least) least = floor(graph, made, options);
      PlanReport report = report_plan(graph, made, schedule, *least, budget);
      report.graph = graph_name;
      report.strategy = name;
      report.plan_seconds = took.count();
      if (single && (arguments.page.wants_details() || !arguments.exports.csv.empty())) {
        details = plan_details_json({graph, made, schedule, report.placement});
      }
      reports.push_back(std::move(report));
    }
  }
  if (!arguments.schedule.empty() && reports.front().feasible) {
    write_file(arguments.schedule, print_schedule(schedule, graph));
  }
  nlohmann::json plans = nlohmann::json::array();
  for (const PlanReport& report : reports) plans.push_back(plan_json(report));
  if (single) write_page(arguments.page, "plan", graph_name, plans.front(), details);
  if (!arguments.json.empty()) {
    write_json(arguments.json, single ? plans.front() : nlohmann::json{{"plans", plans}});
  }
  write_csv(arguments.exports, plans_csv(plans, details));
  if (single) write_plan(arguments.exports, graph, order, schedule, budgets.front());
  if (!arguments.save.empty() && reports.front().feasible) {
    save(arguments.save, std::move(source), made, schedule, budgets.front());
  }
  if (!single) {
    if (!quiet) write_file("-", plan_table(reports));
    return kDone;
  }
  const PlanReport& report = reports.front();
  if (!report.feasible) {
    report_error("remat plan", infeasible_message(report));
    return kInfeasible;
  }
  if (!quiet) write_file("-", plan_text(report, style_of(1)));
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
      ->add_option("--orders", arguments->options.max_orders,
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
  command
      ->add_option("--save", arguments->save,
                   "Write the plan with its graph and addresses, for remat run --plan, load_plan and "
                   "remat verify; implies --placed")
      ->type_name("FILE");
  add_json_option(*command, arguments->json);
  add_page_options(*command, arguments->page,
                   "before and after, what is kept and why, the arena, the step as an animation");
  add_trace_option(*command, arguments->exports,
                   "Write both steps, planned and plain, for ui.perfetto.dev or chrome://tracing");
  add_dot_options(*command, arguments->exports);
  add_csv_option(*command, arguments->exports);
  add_size_options(*command, arguments->source);
  add_update_option(*command, arguments->source);
  add_move_options(*command, arguments->source.moves);
  add_offload_option(*command, arguments->source.moves);
  command->footer("Exits with 3 if the plan does not fit (one budget, one strategy).");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace remat
