// SPDX-License-Identifier: Apache-2.0

// remat explain: why each value is kept or recomputed.

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/files.h"
#include "remat/core/error.h"
#include "remat/core/explain.h"
#include "remat/core/units.h"
#include "remat/report/plan_report.h"

namespace remat {
namespace {

struct ExplainArguments {
  std::string graph;
  std::vector<std::string> budget;
  std::string strategy = "auto";
  std::string value;
  std::string json;
};

std::vector<Explanation> select(const Graph& graph, std::vector<Explanation> explanations,
                                const std::string& value) {
  if (value.empty()) {
    // Without a name, what was decided is what is of interest.
    std::erase_if(explanations, [](const Explanation& e) { return e.action == Action::none; });
    return explanations;
  }
  std::erase_if(explanations,
                [&](const Explanation& e) { return graph.storage(e.storage).name != value; });
  if (!explanations.empty()) return explanations;
  const bool external = std::any_of(graph.storages.begin(), graph.storages.end(),
                                    [&](const Storage& s) { return s.name == value; });
  throw Error(
      "no value '" + value + "' to explain: " +
      (external ? "it is external and lives through the step" : "the graph has no such storage") +
      "; expected a storage that the step creates");
}

int run(const ExplainArguments& arguments) {
  const Graph graph = load_graph(arguments.graph);
  PlanOptions options;
  options.strategy = arguments.strategy;
  options.budget_bytes =
      parse_budget(arguments.budget.front(), keep_all_baseline(graph).peak_bytes);
  const Plan made = plan_with_progress(graph, options);
  const std::vector<Explanation> explanations =
      select(graph, explain(graph, made), arguments.value);
  if (!arguments.json.empty()) {
    write_json(arguments.json, {{"strategy", made.strategy},
                                {"budget_bytes", options.budget_bytes},
                                {"feasible", made.feasible},
                                {"peak_bytes", made.peak_bytes},
                                {"time_ns", made.time_ns},
                                {"values", explain_json(graph, explanations)}});
  }
  if (arguments.json != "-") write_file("-", explain_text(explanations));
  if (made.feasible) return kDone;
  report_error("remat explain", "this is the best that " + options.strategy +
                                    " can do: it reaches " + format_bytes(made.peak_bytes) +
                                    ", above the budget of " + format_bytes(options.budget_bytes) +
                                    "; raise --budget");
  return kInfeasible;
}

}  // namespace

void add_explain_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* command = app.add_subcommand("explain", "Say why each value is kept or recomputed");
  command->add_option("graph", arguments->graph, "A graph file; - is standard input")
      ->required()
      ->type_name("GRAPH");
  add_budget_option(*command, arguments->budget, false);
  command->add_option("--strategy", arguments->strategy, "How to decide:" + strategy_help())
      ->check(strategy_fault, "")
      ->type_name("NAME");
  command
      ->add_option(
          "--value", arguments->value,
          "Only this storage; without it, every storage there was something to decide about")
      ->type_name("V");
  add_json_option(*command, arguments->json);
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace remat
