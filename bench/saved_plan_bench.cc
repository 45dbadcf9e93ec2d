// SPDX-License-Identifier: Apache-2.0
// saved_plan_bench: what the first call of a step costs that has a saved plan, in plain steps.
//
//   saved_plan_bench resnet50 r.plan --save      one process: plans at --budget and saves
//   saved_plan_bench resnet50 r.plan             another: plain steps and first calls, interleaved;
//                                                then their medians
//
// The budget is that of the plan, so that what does not fit goes to a file while the first call is recorded. Times are
// by the clock; in brackets CPU time of the process, all threads together, which other work on the machine changes less.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <cstdio>
#include <string>
#include <vector>

#include "remat/core/error.h"
#include "remat/libtorch/budget.h"
#include "remat/libtorch/saved_plan.h"
#include "remat/libtorch/training_step.h"
#include "remat/models/zoo.h"

namespace {

using remat::Batch;

double ms_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Bench {
  std::string model;
  std::string file;
  remat::models::ModelSize size = {};
  double share = 0.5;
  int rounds = 5;
  bool save = false;

  void run() {
    torch::manual_seed(1);
    const remat::models::TrainingTask task = remat::models::find_model(model).make(size);
    const Batch batch = task.make_batch(1);
    if (save) {
      remat::TrainingStep step(task.loss, task.module->parameters(), task.module->buffers(),
                               {.budget_of = remat::share_of_plain_peak(share)});
      step(batch);
      step.save_plan(file);
      const remat::StepReport report = step.report();
      std::printf("saved: capture %.2f s, measure %.2f s, plan %.2f s\n", report.capture_seconds,
                  report.measure_seconds, report.plan_seconds);
      return;
    }
    const double load_start = ms_of(CLOCK_MONOTONIC);
    const remat::PlanFile plan = remat::load_plan(file);
    std::printf("load_plan %.0f ms\n", ms_of(CLOCK_MONOTONIC) - load_start);
    const int64_t budget_bytes = plan.courses.front().budget_bytes;
    std::vector<double> plain, first, first_cpu, second;
    int64_t spilled_bytes = 0;
    for (int round = 0; round <= rounds; ++round) {
      const Times plain_time = timed([&] { plain_step(task, batch); });
      remat::TrainingStep step(task.loss, task.module->parameters(), task.module->buffers(),
                               {.budget_bytes = budget_bytes,
                                .saved_plan = plan,
                                .notice = [](const std::string& text) { std::printf("notice: %s\n", text.c_str()); }});
      const Times first_time = timed([&] { step(batch); });
      task.module->zero_grad();
      const Times second_time = timed([&] { step(batch); });
      task.module->zero_grad();
      const remat::StepReport report = step.report();
      if (!report.from_saved_plan) {
        throw remat::Error("the saved plan was not used: " + report.saved_plan_refused);
      }
      spilled_bytes = report.spilled_bytes;
      std::printf("%s plain %.0f ms, first %.0f ms (%.2f; CPU %.2f), second %.0f ms (%.2f)\n",
                  round == 0 ? "cold:" : "     ", plain_time.clock_ms, first_time.clock_ms,
                  first_time.clock_ms / plain_time.clock_ms, first_time.cpu_ms / plain_time.cpu_ms,
                  second_time.clock_ms, second_time.clock_ms / plain_time.clock_ms);
      if (round > 0) {
        plain.push_back(plain_time.clock_ms);
        first.push_back(first_time.clock_ms / plain_time.clock_ms);
        first_cpu.push_back(first_time.cpu_ms / plain_time.cpu_ms);
        second.push_back(second_time.clock_ms / plain_time.clock_ms);
      }
    }
    std::printf("%s: plain %.0f ms, budget %.0f MiB, %.0f MiB in a file; first call %.2f plain steps (CPU %.2f), second "
                "%.2f (medians of %d)\n",
                model.c_str(), median(plain), static_cast<double>(budget_bytes) / (1 << 20),
                static_cast<double>(spilled_bytes) / (1 << 20), median(first), median(first_cpu), median(second), rounds);
  }

  struct Times {
    double clock_ms = 0;
    double cpu_ms = 0;
  };
  template <typename Work>
  static Times timed(const Work& work) {
    const Times start{ms_of(CLOCK_MONOTONIC), ms_of(CLOCK_PROCESS_CPUTIME_ID)};
    work();
    return {ms_of(CLOCK_MONOTONIC) - start.clock_ms, ms_of(CLOCK_PROCESS_CPUTIME_ID) - start.cpu_ms};
  }

  static void plain_step(const remat::models::TrainingTask& task, const Batch& batch) {
    task.loss(batch).backward();
    task.module->zero_grad();
  }
};

}  // namespace

int main(int argc, char** argv) {
  Bench bench;
  CLI::App app("What the first call of a step with a saved plan costs");
  app.add_option("model", bench.model, "A model of the zoo")->required();
  app.add_option("file", bench.file, "The plan")->required();
  app.add_flag("--save", bench.save, "Make the plan and save it");
  app.add_option("--share", bench.share, "With --save: the budget as a share of the plain peak");
  app.add_option("--batch", bench.size.batch);
  app.add_option("--image", bench.size.image);
  app.add_option("--seq", bench.size.sequence);
  app.add_option("--rounds", bench.rounds);
  CLI11_PARSE(app, argc, argv);
  try {
    bench.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "saved_plan_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
