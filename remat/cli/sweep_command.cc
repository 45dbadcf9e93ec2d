// SPDX-License-Identifier: Apache-2.0

// remat sweep: what other batch sizes and budgets would need and cost.

#include "remat/cli/sweep.h"

#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/exports.h"
#include "remat/cli/files.h"
#include "remat/cli/model_task.h"
#include "remat/cli/terminal.h"
#include "remat/report/page.h"

namespace remat {
namespace {

struct SweepArguments {
  SweepOptions options;
  std::string html;
  std::string json;
  Exports exports;
};

volatile std::sig_atomic_t interrupts = 0;

// The first asks for what there is so far, the second means it.
extern "C" void count_interrupt(int) {
  if (interrupts != 0) std::_Exit(kInterrupted);
  interrupts = 1;
}

int run(const SweepArguments& arguments) {
  const bool quiet = check_outputs({&arguments.html, &arguments.json});
  check_csv(arguments.exports);
  SweepOptions options = arguments.options;
  if (options.batches.empty()) options.batches = default_batches(options.model);
  if (options.strategies.empty()) {
    for (const Strategy& strategy : strategies()) options.strategies.emplace_back(strategy.name);
  }
  std::signal(SIGINT, count_interrupt);
  const SweepReport report = sweep(options, [] { return interrupts != 0; });
  nlohmann::json json = sweep_json(report);
  json.update(model_json(options.model));
  if (report.frontier_batch > 0) json["batch"] = report.frontier_batch;
  if (!arguments.json.empty()) write_json(arguments.json, json);
  if (!arguments.html.empty()) {
    write_file(arguments.html, page_html("sweep", "Trade-off of " + report.model, json));
  }
  write_csv(arguments.exports, sweep_csv(json));
  if (!quiet) write_file("-", sweep_text(report, style_of(1)));
  return report.interrupted ? kInterrupted : kDone;
}

}  // namespace

void add_sweep_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<SweepArguments>();
  SweepOptions& options = arguments->options;
  options.budgets = {"100%", "80%", "65%", "50%", "40%", "30%"};
  CLI::App* command = app.add_subcommand(
      "sweep", "Say what other batch sizes and budgets would need and cost");
  add_model_arguments(*command, options.model);
  add_move_options(*command, options.model.moves);
  add_offload_option(*command, options.model.moves);
  command
      ->add_option("--batches", options.batches,
                   "Batch sizes, with commas; 1, 2, 4, ... up to the model's otherwise")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->type_name("LIST");
  command
      ->add_option("--budgets", options.budgets,
                   "Budgets for every strategy, with commas: bytes with a unit, or shares of the plain "
                   "peak at --batch (without it, or where this machine has no memory for it, the largest of --batches that it "
                   "has memory for); 100%,80%,65%,50%,40%,30% otherwise")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(budget_fault, "")
      ->type_name("LIST");
  command
      ->add_option("--limit", options.limit,
                   "What a step may take: bytes with a unit, or a share of the same peak; what the machine "
                   "has left otherwise")
      ->check(budget_fault, "")
      ->type_name("B");
  command
      ->add_option("--strategy", options.strategies,
                   "Strategies to draw, with commas; all of them otherwise:" + strategy_help())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(strategy_fault, "")
      ->type_name("LIST");
  command->add_flag("--measured", options.measured,
                    "Run every point, interleaved with the plain step; without it, points are planned");
  command->add_option("--steps", options.steps, "With --measured: timed steps of each point")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--time-limit", options.time_limit_seconds, "Seconds that each plan may take")
      ->check(CLI::NonNegativeNumber)
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Of parameters, batches and searches")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--html", arguments->html, "Write the page; - is standard output")
      ->type_name("FILE");
  add_json_option(*command, arguments->json);
  add_csv_option(*command, arguments->exports);
  command->footer(
      "At each batch size the plan gets half of what the plain step needs, the limit where that is less, "
      "and its floor at least.\nTwo small sizes are captured first. What this machine has no memory to capture by their numbers, twice that of the "
      "plain step, is not tried.\nAn interrupt ends it with what there is so far, and exit code 130.");
  command->callback([arguments, &exit_code] {
    exit_code = with_plain_errors([&] { return run(*arguments); });
  });
}

}  // namespace remat
