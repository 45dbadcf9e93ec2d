// SPDX-License-Identifier: Apache-2.0

// remat run: trains a model inside a budget beside plain LibTorch, and compares bytes, time and
// bits.

#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/exports.h"
#include "remat/cli/files.h"
#include "remat/cli/model_task.h"
#include "remat/cli/page_output.h"
#include "remat/cli/run.h"

namespace remat {
namespace {

struct RunArguments {
  RunOptions options;
  std::vector<std::string> budget;
  std::string json;
  PageOutput page;
  Exports exports;
};

int run(const RunArguments& arguments) {
  RunOptions options = arguments.options;
  if (!arguments.budget.empty()) options.budget = arguments.budget.front();
  if (options.budget.empty() && options.plan.empty()) throw CLI::RequiredError("--budget");
  const bool quiet =
      check_outputs({&arguments.json, &arguments.page.html, &arguments.exports.trace});
  check_csv(arguments.exports);
  RunReport report;
  nlohmann::json details = nlohmann::json::object();
  {
    Run run(options);
    if (run.prepare()) {
      run.train();
      if (!arguments.exports.trace.empty()) {
        write_trace(arguments.exports, run.graph(), {run.traced_step(), plain_step(run.graph())});
      }
    }
    if (arguments.page.wants_details() || !arguments.exports.csv.empty()) {
      details = plan_details_json(run.plan_details());
    }
    report = run.report();
  }
  nlohmann::json json = run_json(report);
  json.update(model_json(options.model));
  write_page(arguments.page, "plan", "Run of " + report.model, json, details);
  if (!arguments.json.empty()) write_json(arguments.json, json);
  write_csv(arguments.exports, run_csv(json, details));
  if (!report.methods.front().feasible) {
    report_error("remat run", report.methods.front().fault);
    return kInfeasible;
  }
  if (!quiet) write_file("-", run_text(report));
  for (const MethodReport& method : report.methods) {
    const std::string broken = broken_promise(report, method);
    if (broken.empty()) continue;
    report_error("remat run", broken);
    return kError;
  }
  return kDone;
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<RunArguments>();
  RunOptions& options = arguments->options;
  CLI::App* command =
      app.add_subcommand("run", "Train a model inside a budget beside plain LibTorch and compare");
  add_model_arguments(*command, options.model);
  add_update_option(*command, options.model);
  add_move_options(*command, options.model.moves);
  add_offload_option(*command, options.model.moves);
  command
      ->add_option("--budget", arguments->budget,
                   "Bytes with a unit (1.5GiB), a share of the keep-all peak (50%), or auto: what the "
                   "machine or the cgroup has left, less a tenth")
      ->expected(1)
      ->type_name("B")
      ->check(running_budget_fault, "");
  command->add_option("--steps", options.steps, "Training steps, each of them a timed round")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* strategy =
      command->add_option("--strategy", options.strategy, "How to decide:" + strategy_help())
          ->check(strategy_fault, "")
          ->type_name("NAME");
  command
      ->add_option("--plan", options.plan,
                   "A plan that plan --save wrote for this model at this size: nothing is measured and "
                   "planned. Without --budget, its own")
      ->excludes(strategy)
      ->type_name("FILE");
  command
      ->add_option("--compare", options.compare,
                   "Further strategies, with commas, in the same rounds; checkpoint is eager "
                   "checkpointing, block by block")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check([](const std::string& name) {
        return name == kCheckpoint ? "" : strategy_fault(name);
      }, "")
      ->type_name("LIST");
  command->add_flag("--verify", options.verify,
                    "Check every schedule independently, and run one more step in which freed memory "
                    "is overwritten");
  command
      ->add_option("--time-limit", options.time_limit_seconds, "Seconds that planning may take")
      ->check(CLI::NonNegativeNumber)
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Of parameters, batches and the search")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->type_name("N")
      ->capture_default_str();
  add_json_option(*command, arguments->json);
  add_page_options(*command, arguments->page,
                   "before and after, predicted and measured, what is kept and why, the arena, the step as an "
                   "animation");
  add_trace_option(*command, arguments->exports,
                   "Write one more step, as it was measured, for ui.perfetto.dev or chrome://tracing");
  add_csv_option(*command, arguments->exports);
  command->footer(
      "The plain step must fit into memory: for one that does not, remat fit finds the largest batch that trains inside a "
      "budget, and a TrainingStep trains inside its own.\nEvery method trains a model of its own from the same seed; without --optimizer, with SGD and momentum outside of "
      "the step.\nExits with 3 if no plan fits, with 1 if a bit differs or a peak is not as predicted, or if the "
      "saved plan is for something else.");
  command->callback([arguments, &exit_code] {
    exit_code = with_plain_errors([&] { return run(*arguments); });
  });
}

}  // namespace remat
