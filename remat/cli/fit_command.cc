// SPDX-License-Identifier: Apache-2.0

// remat fit: the largest batch, sequence or image of a model that trains inside a budget.

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/exports.h"
#include "remat/cli/files.h"
#include "remat/cli/model_task.h"
#include "remat/cli/optimizer.h"
#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/fit_step.h"
#include "remat/report/fit_report.h"

namespace remat {
namespace {

struct FitArguments {
  ModelOptions model;
  std::vector<std::string> budget;
  std::string along = "batch";
  int64_t multiple = 0;
  int64_t smallest = 1;
  int64_t largest = 0;
  double most_time = std::numeric_limits<double>::infinity();
  double time_limit_seconds = FitOptions{}.plan_seconds;
  int64_t seed = 1;
  std::string json;
  Exports exports;
};

// A size that grows, by its flag.
struct Along {
  const char* flag;
  const char* name;
  int64_t models::ModelSize::*value;
  int64_t ModelOptions::*option;
  Growth growth;
  // Sizes in between differ little, or are not to be had: strides and patches divide an image.
  int64_t multiple;
};
constexpr Along kAlong[] = {
    {"batch", "batch", &models::ModelSize::batch, &ModelOptions::batch, Growth::affine, 1},
    {"seq", "sequence", &models::ModelSize::sequence, &ModelOptions::sequence, Growth::quadratic,
     16},
    {"image", "image", &models::ModelSize::image, &ModelOptions::image, Growth::quadratic, 32}};

const Along& along_of(const FitArguments& arguments) {
  return *std::ranges::find(kAlong, arguments.along, &Along::flag);
}

// One step as it is trained: gradients are dropped before it and, where it updates, die in it.
SizedStep make_step(const FitArguments& arguments, int64_t size) {
  ModelOptions options = arguments.model;
  options.*along_of(arguments).option = size;
  const models::TrainingTask task = make_task(options, arguments.seed);
  Batch batch = task.make_batch(arguments.seed);
  const auto parameters = task.module->parameters();
  if (!arguments.model.updates_inside()) {
    return {[task, parameters](const Batch& samples) {
              for (at::Tensor parameter : parameters) parameter.mutable_grad().reset();
              const at::Tensor loss = task.loss(samples);
              loss.backward();
              return Batch{loss.detach()};
            },
            std::move(batch)};
  }
  const auto optimizer = make_optimizer(arguments.model.optimizer, parameters);
  return {[task, optimizer](const Batch& samples) {
            const at::Tensor loss = task.loss(samples);
            loss.backward();
            optimizer->step();
            optimizer->zero_grad();
            return Batch{loss.detach()};
          },
          std::move(batch)};
}

FitOptions fit_options(const FitArguments& arguments) {
  const Along& along = along_of(arguments);
  const models::ZooEntry& entry = models::find_model(arguments.model.model);
  FitOptions options{.budget_bytes = running_budget(arguments.budget.front(), 0, {}),
                     .growth = along.growth,
                     .smallest = arguments.smallest,
                     .multiple = arguments.multiple != 0 ? arguments.multiple : along.multiple,
                     .most_time = arguments.most_time,
                     .plan_seconds = arguments.time_limit_seconds,
                     .seed = static_cast<uint64_t>(arguments.seed)};
  if (entry.largest.*along.value != 0) options.largest = entry.largest.*along.value;
  if (arguments.largest != 0) options.largest = std::min(options.largest, arguments.largest);
  return options;
}

FitReport describe(const FitArguments& arguments) {
  const Along& along = along_of(arguments);
  models::ModelSize size = size_of(arguments.model);
  const int64_t batch = size.batch;
  size.*along.value = 0;
  const int threads = at::get_num_threads();
  FitReport report;
  report.model = detail::concat(arguments.model.model, ", ", size_label(size), ", ",
                                arguments.model.dtype, ", optimizer ", arguments.model.optimizer, ", ",
                                threads, threads == 1 ? " thread" : " threads");
  report.along = along.name;
  if (arguments.along == "seq") report.per = "token";
  report.count = arguments.along == "batch" ? 1 : batch;
  report.fixed = arguments.along == "image";
  return report;
}

nlohmann::json described_json(const FitArguments& arguments, const FitReport& report) {
  nlohmann::json json = fit_json(report);
  nlohmann::json model = model_json(arguments.model);
  model.erase(along_of(arguments).name);
  json.update(model);
  return json;
}

void check(const FitArguments& arguments) {
  const Along& along = along_of(arguments);
  if (arguments.model.*along.option != 0) {
    throw CLI::ValidationError(detail::concat("--", along.flag),
                               "is what is searched for; see --along");
  }
  if (arguments.budget.front().ends_with('%')) {
    throw CLI::ValidationError(
        "--budget", "a share of a size that is not known; expected bytes with a unit");
  }
  const models::ZooEntry& entry = models::find_model(arguments.model.model);
  if (entry.defaults.*along.value == 0) {
    throw CLI::ValidationError("--along",
                               detail::concat(entry.name, " has no size '", along.name, "'"));
  }
}

int run(const FitArguments& arguments) {
  check(arguments);
  check_outputs({&arguments.json});
  check_csv(arguments.exports);
  FitReport report;
  {
    Progress progress;
    const auto start = std::chrono::steady_clock::now();
    FitOptions options = fit_options(arguments);
    StepOptions steps{.plan_seconds = arguments.time_limit_seconds,
                      .seed = static_cast<uint64_t>(arguments.seed)};
    // How many sizes will be tried is not known before; of each step, how many ops there are.
    std::string doing;
    options.progress = [&](const std::string& line) { progress.show(doing = line); };
    steps.progress = [&](const StepProgress& made) {
      if (made.ops_done == 0 || made.stage == StepProgress::Stage::measure || !progress.wanted()) return;
      if (made.ops_total == 0) return progress.show(detail::concat(doing, ", ", made.ops_done, " ops so far"));
      progress.show(doing, static_cast<double>(made.ops_done) / static_cast<double>(made.ops_total));
    };
    const Fit found = fit([&](int64_t size) { return make_step(arguments, size); }, options, steps);
    report = describe(arguments);
    report.budget_bytes = options.budget_bytes;
    report.fit = found;
    const auto took = std::chrono::steady_clock::now() - start;
    report.seconds = std::chrono::duration<double>(took).count();
  }
  const nlohmann::json json = described_json(arguments, report);
  if (!arguments.json.empty()) write_json(arguments.json, json);
  write_csv(arguments.exports, fit_csv(json));
  if (report.fit.planned.size == 0) {
    report_error("remat fit", nothing_fits_message(report));
    return kInfeasible;
  }
  if (arguments.json != "-") write_file("-", fit_text(report));
  return kDone;
}

}  // namespace

void add_fit_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<FitArguments>();
  CLI::App* command = app.add_subcommand(
      "fit", "Find the largest batch, sequence or image that trains inside a budget");
  add_model_arguments(*command, arguments->model);
  command->add_option("--budget", arguments->budget, "Bytes with a unit (1.5GiB), or auto: what the machine or "
                      "the cgroup has left, less a tenth")
      ->required()
      ->expected(1)
      ->type_name("B")
      ->check(running_budget_fault, "");
  command->add_option("--along", arguments->along, "What grows: batch, seq or image")
      ->check(CLI::IsMember({"batch", "seq", "image"}))
      ->type_name("NAME")
      ->capture_default_str();
  add_optimizer_option(*command, arguments->model.optimizer, "forward and backward, as remat run");
  command
      ->add_option("--most-time", arguments->most_time,
                   "The planned step may take so many times as long as the plain one of that size")
      ->check(CLI::Range(1.0, 1e6))
      ->type_name("X");
  command
      ->add_option("--multiple", arguments->multiple,
                   "Try multiples of it only; 1 for a batch, 16 for a sequence, 32 for an image")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  command->add_option("--smallest", arguments->smallest, "Try no smaller size")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  command->add_option("--largest", arguments->largest, "Try no larger size")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  command
      ->add_option("--time-limit", arguments->time_limit_seconds,
                   "Seconds that each of a few plans may take")
      ->check(CLI::NonNegativeNumber)
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "Of parameters, batches and the search")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->type_name("N")
      ->capture_default_str();
  add_json_option(*command, arguments->json);
  add_csv_option(*command, arguments->exports);
  command->footer(
      "Records small sizes, plans larger ones from them, and runs what it finds in the budget.\n"
      "Exits with 3, and the least known peak, if not even the smallest size fits.");
  command->callback([arguments, &exit_code] {
    exit_code = with_plain_errors([&] { return run(*arguments); });
  });
}

}  // namespace remat
