// SPDX-License-Identifier: Apache-2.0

// remat explain: what a plan keeps, recomputes, packs and offloads, by layer; and why, value by value.

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/exports.h"
#include "remat/cli/files.h"
#include "remat/cli/model_source.h"
#include "remat/core/error.h"
#include "remat/core/explain.h"
#include "remat/core/moves.h"
#include "remat/core/units.h"
#include "remat/report/layer_decisions.h"
#include "remat/report/plan_report.h"

namespace remat {
namespace {

struct ExplainArguments {
  std::string graph;
  std::vector<std::string> budget;
  std::string strategy = "auto";
  std::string value;
  bool values = false;
  int depth = 2;
  MoveOptions moves;
  std::string json;
  Exports exports;
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
  check_outputs({&arguments.json});
  check_csv(arguments.exports);
  const Graph graph = with_moves(load_graph(arguments.graph), arguments.moves.pack, arguments.moves.offload);
  PlanOptions options;
  options.strategy = arguments.strategy;
  options.budget_bytes =
      parse_budget(arguments.budget.front(), keep_all_baseline(graph).peak_bytes);
  const Plan made = plan_with_progress(graph, options);
  const std::vector<Explanation> all = explain(graph, made);
  const std::vector<Explanation> explanations = select(graph, all, arguments.value);
  const std::vector<LayerDecisions> layers = decisions_by_layer(graph, made, all, arguments.depth);
  const nlohmann::json json = {{"strategy", made.strategy},
                               {"budget_bytes", options.budget_bytes},
                               {"feasible", made.feasible},
                               {"peak_bytes", made.peak_bytes},
                               {"time_ns", made.time_ns},
                               {"layers", layer_decisions_json(layers)},
                               {"values", explain_json(graph, explanations)}};
  if (!arguments.json.empty()) write_json(arguments.json, json);
  write_csv(arguments.exports, explain_csv(json));
  if (arguments.json != "-") {
    const bool by_value = arguments.values || !arguments.value.empty();
    write_file("-", by_value ? explain_text(explanations)
                             : layer_decisions_text(layers) +
                                   "\nWhy, value by value: --values, or --value NAME\n");
  }
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
  CLI::App* command = app.add_subcommand("explain", "Say by layer what a plan does with values; or why, one by one");
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
          "Say why this storage is kept, recomputed, packed or offloaded, with the price of each")
      ->type_name("NAME");
  command->add_flag("--values", arguments->values,
                    "Say so for every storage there was something to decide about");
  add_move_options(*command, arguments->moves);
  add_depth_option(*command, arguments->depth);
  add_json_option(*command, arguments->json);
  add_csv_option(*command, arguments->exports);
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace remat
