// SPDX-License-Identifier: Apache-2.0

// Every strategy on every graph at a range of budgets, in one table, and what is asked of it as
// counts: `auto` the best in every cell, monotone along every row, and the one that goes lowest.
// Exits with 1 if `verify` rejects a plan.
//
// plan_bench stages: the same plans of `auto` without each stage of its search, in another table.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "bench/generator/graphs.h"
#include "bench/plan_cells.h"
#include "bench/plan_checks.h"
#include "bench/plan_stages.h"
#include "remat/cli/exit_code.h"
#include "remat/cli/files.h"
#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/report/table.h"

namespace remat::bench {
namespace {

constexpr std::string_view kJudged = "auto";
constexpr size_t kLargestUnnamed = 6'000;  // ops; recompute_all grows quadratically
// Of `stages`: small and large, with and without an update.
const std::vector<std::string> kStageGraphs = {
    "mlp", "unet", "resnet18", "resnet50", "vit_small", "gpt2_small_adamw", "deep_gpt_5k"};
const std::vector<double> kStageBudgets = {60, 50, 30, 20};

struct Arguments {
  std::vector<std::string> files;
  std::vector<std::string> graphs;  // empty: all but the largest
  Grid grid;
  bool markdown = false;
};

std::vector<std::string> all_strategies() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

std::vector<std::string> stage_names() {
  std::vector<std::string> names;
  for (const Stage& stage : search_stages()) names.emplace_back(stage.name);
  return names;
}

void leave_out(std::string_view name, SearchStages& stages) {
  stages.*std::ranges::find(search_stages(), name, &Stage::name)->on = false;
}

using Rows = std::vector<std::vector<std::string>>;  // the header first

std::string markdown_line(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string table_text(const Rows& rows, bool markdown) {
  if (!markdown) {
    Table table(rows.front());
    for (size_t r = 1; r < rows.size(); ++r) table.add_row(rows[r]);
    return table.text();
  }
  std::string out = markdown_line(rows.front()) + "|---|";
  for (size_t c = 1; c < rows.front().size(); ++c) out += "---:|";
  out += "\n";
  for (size_t r = 1; r < rows.size(); ++r) out += markdown_line(rows[r]);
  return out;
}

std::string cell_text(const Cell& cell) {
  const std::string what = !cell.violation.empty() ? "WRONG"
                           : cell.feasible         ? fmt::format("{:.2f}", cell.overhead_percent)
                                                   : "-";
  return fmt::format("{} ({:.2f})", what, cell.plan_seconds);
}

std::string plans_text(const std::vector<GraphRows>& graphs, const Arguments& arguments) {
  Rows rows = {{"graph", "strategy"}};
  for (const double budget : arguments.grid.budget_percents) {
    rows.front().push_back(fmt::format("{} %", budget));
  }
  for (const GraphRows& graph : graphs) {
    for (const Row& row : graph.rows) {
      rows.push_back({graph.graph, row.strategy});
      for (const Cell& cell : row.cells) rows.back().push_back(cell_text(cell));
    }
  }
  return "Overhead in % of the plain step's time at budgets in % of the keep-all peak, - where the "
         "plan does not fit\n(in brackets: seconds of CPU time to plan).\n\n" +
         table_text(rows, arguments.markdown);
}

std::string check_text(std::string_view what, const Check& check, std::string_view unit) {
  std::string out =
      fmt::format("- {} {}: not in {} of {} {}\n", kJudged, what, check.failed, check.total, unit);
  for (const std::string& failure : check.failures) out += "  - " + failure + "\n";
  return out;
}

std::string lowest_text(const std::vector<Lowest>& all, bool markdown) {
  const auto shown = [](const std::optional<double>& budget) {
    return budget ? fmt::format("{} %", *budget) : std::string("-");
  };
  Rows rows = {{"graph", std::string(kJudged), "best other", "which", "floor"}};
  int64_t higher = 0;
  int64_t lower = 0;
  int64_t below_floor = 0;
  for (const Lowest& lowest : all) {
    if (lowest.other && (!lowest.own || *lowest.own > *lowest.other)) ++higher;
    if (lowest.own && (!lowest.other || *lowest.own < *lowest.other)) ++lower;
    if (lowest.below_floor()) ++below_floor;
    rows.push_back({lowest.graph, shown(lowest.own), shown(lowest.other), lowest.other_strategy,
                    fmt::format("{:.1f} %", lowest.floor_percent)});
  }
  return fmt::format(
      "- lowest budget that {} fits, to 1 %, against the best of the others (search and optimal, which "
      "it is made of, apart): lower on {}, higher on {}, of {} graphs\n- a budget below floor() was met on {} graphs\n\n{}",
      kJudged, lower, higher, all.size(), below_floor, table_text(rows, markdown));
}

std::string placements_text(const Placements& found) {
  std::string out =
      fmt::format("- arena == max live in {} of {} plans that fit", found.tight, found.plans);
  if (found.plans > 0) {
    out += fmt::format(" ({:.1f} %)",
                       100.0 * static_cast<double>(found.tight) / static_cast<double>(found.plans));
  }
  out += fmt::format("; waste above {} % in {}, the largest {:.3f} %", kWastePercentAllowed,
                     found.wasteful, found.worst_waste_percent);
  if (!found.worst.empty()) out += fmt::format(" ({})", found.worst);
  out += "\n";
  for (const std::string& plan : found.wasteful_plans) out += "  - " + plan + "\n";
  return out;
}

// Prints each plan that verify rejected; returns how many that were.
int64_t report_violations(const std::vector<GraphRows>& graphs) {
  int64_t count = 0;
  for (const GraphRows& graph : graphs) {
    for (const Row& row : graph.rows) {
      for (const Cell& cell : row.cells) {
        if (cell.violation.empty()) continue;
        ++count;
        std::cout << fmt::format("- VIOLATION {} {} at {} %: {}\n", graph.graph, row.strategy,
                                 cell.budget_percent, cell.violation);
      }
    }
  }
  return count;
}

void for_each_graph(const Arguments& arguments,
                    const std::function<void(const std::string&, const Graph&)>& take) {
  if (arguments.graphs.empty()) {
    for (const NamedGraph& named : named_graphs()) {
      const Graph graph = named.make();
      if (graph.ops.size() <= kLargestUnnamed) take(std::string(named.name), graph);
    }
  }
  for (const std::string& name : arguments.graphs) {
    if (name == "none") continue;
    const NamedGraph* named = graph_named(name);
    if (!named) {
      throw Error(detail::concat("--graphs has '", name,
                                 "'; expected none or names that make_graphs --list shows"));
    }
    take(name, named->make());
  }
  for (const std::string& file : arguments.files) {
    take(name_of_file(file), parse_graph(read_file(file)));
  }
}

void show_progress(const std::string& graph, std::string_view strategy, double budget_percent) {
  std::cerr << fmt::format("\r\033[K{} {} {} %", graph, strategy, budget_percent) << std::flush;
}

std::vector<GraphRows> plan_all(Arguments& arguments) {
  std::ranges::sort(arguments.grid.budget_percents, std::greater());
  const bool terminal = isatty(STDERR_FILENO) != 0;
  std::vector<GraphRows> graphs;
  for_each_graph(arguments, [&](const std::string& name, const Graph& graph) {
    if (terminal) {
      arguments.grid.progress = [&](std::string_view strategy, double budget_percent) {
        show_progress(name, strategy, budget_percent);
      };
    }
    graphs.push_back(plan_cells(name, graph, arguments.grid));
  });
  if (terminal) std::cerr << "\r\033[K";
  return graphs;
}

ExitCode run(Arguments& arguments) {
  const std::vector<GraphRows> graphs = plan_all(arguments);
  std::cout << plans_text(graphs, arguments) << "\n";
  std::cout << check_text("is the best or equal", check_best(graphs, kJudged),
                          "cells in which any strategy fits");
  std::cout << check_text("is monotone in the budget", check_monotone(graphs, kJudged), "rows");
  std::cout << placements_text(check_placements(graphs));
  const int64_t violations = report_violations(graphs);
  std::cout << fmt::format("- rejected by verify: {} plans\n", violations);
  std::cout << lowest_text(lowest_budgets(graphs, kJudged, {"search", "optimal"}), arguments.markdown);
  return violations == 0 ? kDone : kError;
}

// A row as soon as it is known: all of them take a quarter of an hour.
ExitCode compare_stages(Arguments& arguments) {
  arguments.grid.strategies = {std::string(kJudged)};
  int64_t violations = 0;
  const auto plans_without = [&](std::string_view stage) {
    Arguments own = arguments;
    if (!stage.empty()) leave_out(stage, own.grid.stages);
    std::vector<GraphRows> graphs = plan_all(own);
    violations += report_violations(graphs);
    return graphs;
  };
  const auto show = [&](std::string_view name, const StageWorth& worth) {
    std::cout << fmt::format("| `{}` | {} | {} | {:+.2f} | {} | {} | {} | {:.1f} |\n", name, worth.slower,
                             worth.faster, worth.points,
                             worth.worst.empty() ? "" : fmt::format("{}: {:+.2f}", worth.worst, worth.worst_points),
                             worth.higher, worth.wasted, worth.seconds)
              << std::flush;
  };
  const std::vector<GraphRows> with = plans_without("");
  std::cout << "| without | slower | faster | points | worst cell | lowest budget higher | arena above live | CPU s |\n"
               "|---|---:|---:|---:|---|---:|---:|---:|\n";
  show("nothing", worth_of_stage(with, with));
  for (const Stage& stage : search_stages()) show(stage.name, worth_of_stage(with, plans_without(stage.name)));
  return violations == 0 ? kDone : kError;
}

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("files", arguments.files, "Graph files to plan besides")->type_name("FILE");
  app.add_option("--graphs", arguments.graphs,
                 fmt::format("Graphs of the generator, or none; all up to {} ops by default",
                             kLargestUnnamed))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME");
  app.add_option("--strategies", arguments.grid.strategies, "Strategies; all by default")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(all_strategies()))
      ->type_name("NAME");
  app.add_option("--budgets", arguments.grid.budget_percents, "In % of the keep-all peak")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber)
      ->type_name("PERCENT")
      ->capture_default_str();
  app.add_option("--time-limit", arguments.grid.time_limit_seconds, "Of strategies that search")
      ->check(CLI::PositiveNumber)
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option_function<std::vector<std::string>>(
         "--without",
         [&](const std::vector<std::string>& names) {
           for (const std::string& name : names) leave_out(name, arguments.grid.stages);
         },
         "Stages of strategies that search, to see what each contributes")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(stage_names()))
      ->type_name("STAGE");
  app.add_flag("--placed", arguments.grid.placed, "Plans whose addresses fit as well");
  app.add_flag("--markdown", arguments.markdown, "Tables for documents");
}

}  // namespace
}  // namespace remat::bench

int main(int argc, char** argv) {
  remat::bench::Arguments arguments;
  arguments.grid.strategies = remat::bench::all_strategies();
  arguments.grid.budget_percents = {90, 80, 70, 60, 50, 40, 30, 20};
  CLI::App app("Every strategy on every graph at a range of budgets", "plan_bench");
  remat::bench::add_options(app, arguments);
  remat::bench::Arguments staged = arguments;
  staged.graphs = remat::bench::kStageGraphs;
  staged.grid.budget_percents = remat::bench::kStageBudgets;
  CLI::App* stages = app.add_subcommand("stages", "What each stage of the search contributes");
  remat::bench::add_options(*stages, staged);
  try {
    app.parse(argc, argv);
    return stages->parsed() ? remat::bench::compare_stages(staged) : remat::bench::run(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? remat::kDone : remat::kUsage;
  } catch (const std::exception& error) {
    std::cerr << "plan_bench: " << error.what() << "\n";
    return remat::kError;
  }
}
