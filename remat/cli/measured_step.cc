// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/measured_step.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>

#include "remat/cli/median.h"
#include "remat/cli/model_task.h"
#include "remat/cli/optimizer.h"
#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/core/units.h"
#include "remat/libtorch/available_memory.h"
#include "remat/libtorch/budget.h"
#include "remat/libtorch/channel_model.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/measure.h"
#include "remat/libtorch/saved_plan.h"
#include "remat/libtorch/scope.h"

namespace remat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostCalls = 6;  // until a step runs under a plan
constexpr int kTimedSteps = 3;

// Measuring ends when the time is over and the least number of rounds is done, each with and
// without timers; it asks before every op whether to go on.
MeasureOptions measuring_shown(const Graph& graph, Progress& progress) {
  constexpr int kLeastRounds = 3;
  MeasureOptions options;
  const double calls = static_cast<double>(2 * kLeastRounds * graph.ops.size());
  const std::string what = detail::concat("measuring ", graph.ops.size(), " ops");
  progress.show(what, 0);
  options.poll = [&progress, calls, what, seconds = options.seconds, start = Clock::now(),
                  called = int64_t{0}]() mutable {
    ++called;
    if (!progress.wanted()) return;
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    progress.show(what, std::min(elapsed.count() / seconds, static_cast<double>(called) / calls));
  };
  return options;
}

// Of measuring it is not known how many rounds there will be.
void show(const StepProgress& made, Progress& progress) {
  if (!progress.wanted()) return;
  using Stage = StepProgress::Stage;
  const char* const what = made.stage == Stage::record    ? "capturing a step"
                           : made.stage == Stage::measure ? "measuring"
                           : made.stage == Stage::plan    ? "planning"
                                                          : "comparing the planned step";
  const bool counted = made.ops_total > 0 && made.stage != Stage::measure;
  if (counted) {
    progress.show(what, static_cast<double>(made.ops_done) / static_cast<double>(made.ops_total));
  } else {
    progress.show(made.ops_done > 0 ? detail::concat(what, ", ", made.ops_done, " ops so far")
                                    : what);
  }
}

// By a TrainingStep, recorded and planned inside the memory that is left. Without an update it begins without
// gradients, as a captured step does.
MeasuredStep measure_by_step(const ModelOptions& options, const std::string& strategy, const Offloading& offloading,
                             const models::TrainingTask& task, const Batch& batch, Progress& progress) {
  const std::vector<at::Tensor> parameters = task.module->parameters();
  std::function<void()> update;
  LossFunction loss = task.loss;
  if (options.updates_inside()) {
    update = [optimizer = make_optimizer(options.optimizer, parameters)] { optimizer->step(); };
  } else {
    loss = [&](const Batch& given) {
      for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
      return task.loss(given);
    };
  }
  TrainingStepOptions stepping = step_with_update(std::move(update), options.moves.pack, offloading, &progress);
  stepping.strategy = strategy;
  stepping.budget_of = available_memory();
  TrainingStep step(std::move(loss), parameters, task.module->buffers(), std::move(stepping));
  call_until_planned(step, batch);
  std::vector<int64_t> times_ns;
  for (int i = 0; i < kTimedSteps; ++i) {
    progress.show("timing the step", static_cast<double>(i) / kTimedSteps);
    const auto start = Clock::now();
    step(batch);
    times_ns.push_back(std::chrono::nanoseconds(Clock::now() - start).count());
  }
  MeasuredStep made{.graph = step.graph(),
                    .course = step.plan_file().courses.back(),
                    .eager_peak_bytes = step.report().eager_peak_bytes,
                    .step_ns = median(times_ns),
                    .rounds = kTimedSteps};
  made.course.graph = {};
  made.course.plan = {};
  made.course.schedule = {};
  return made;
}

}  // namespace

Offloading open_offloading(const MoveOptions& options) {
  constexpr int64_t kScratchBytes = 32 * MiB;
  if (!options.offload || options.folder.empty()) return {};
  Offloading made{.channel = detail::cpu_device().open_channel(options.folder)};
  made.model = detail::model_of(*made.channel, kScratchBytes);
  return made;
}

Recording capture_task(const models::TrainingTask& task, const Batch& batch, bool pack,
                       const Offloading& offloading, Progress* progress) {
  CaptureOptions options{.buffers = task.module->buffers(), .most_bytes = bytes_for_a_step(), .pack = pack};
  if (progress != nullptr) {
    progress->show("capturing a step");
    options.progress = [progress](int64_t done, int64_t total) {
      if (!progress->wanted()) return;
      if (total == 0)
        return progress->show(detail::concat("capturing a step, ", done, " ops so far"));
      progress->show("capturing a step, twice",
                     static_cast<double>(done) / static_cast<double>(total));
    };
  }
  Recording recording = capture(task.loss, batch, task.module->parameters(), options);
  recording.graph.channel = offloading.model;
  add_moves(recording.graph);
  return recording;
}

MeasuredStep capture_and_measure(const ModelOptions& options, const Offloading& offloading,
                                 const models::TrainingTask& task, const Batch& batch, Progress& progress) {
  if (options.updates_inside()) {
    try {
      return measure_by_step(options, "keep_all", offloading, task, batch, progress);
    } catch (const Infeasible& infeasible) {
      throw DoesNotFit(infeasible.what(), infeasible.floor_bytes);
    }
  }
  MeasuredStep made;
  made.recording = capture_task(task, batch, options.moves.pack, offloading, &progress);
  Measurement measurement =
      measure(*made.recording, batch, measuring_shown(made.recording->graph, progress));
  made.graph = std::move(measurement.graph);
  made.course = describe_course(*made.recording);
  made.eager_peak_bytes = made.recording->eager_peak_bytes;
  made.step_ns = measurement.step_ns;
  made.rounds = measurement.rounds;
  return made;
}

int64_t bytes_for_a_step() {
  // What malloc keeps between its blocks: a plain step's resident set is a third larger than what it has asked for.
  constexpr double kShareOfAvailable = 0.7;
  return static_cast<int64_t>(kShareOfAvailable * static_cast<double>(detail::available_bytes("/")));
}

void throw_too_large(const std::string& model) {
  throw Error(detail::concat("the plain step of ", model, " needs more than the ",
                             format_bytes(detail::available_bytes("/")),
                             " that are left here; expected one that fits: make the batch smaller (remat fit finds the "
                             "largest that trains inside a budget), or train with a TrainingStep, which records "
                             "inside its budget"));
}

MeasuredStep measure_within_memory(const ModelOptions& options, const Offloading& offloading,
                                   const models::TrainingTask& task, const Batch& batch, Progress& progress) {
  try {
    return capture_and_measure(options, offloading, task, batch, progress);
  } catch (const DoesNotFit&) {
    // Once what it took is gone.
  }
  detail::cpu_device().trim();
  std::cerr << "the plain step of " << model_label(options) << " does not fit into the "
            << format_bytes(detail::available_bytes("/"))
            << " that are left here: it is recorded with its values in a file, and timed under a plan" << std::endl;
  try {
    return measure_by_step(options, "auto", offloading, task, batch, progress);
  } catch (const Infeasible&) {
    throw_too_large(model_label(options));
  }
}

TrainingStepOptions step_with_update(std::function<void()> update, bool pack, const Offloading& offloading,
                                     Progress* progress) {
  TrainingStepOptions options;
  options.pack = pack;
  options.execute.channel = offloading.channel;
  options.strategy = "keep_all";
  // However long a step takes: its ops are timed now, and the plan is this one.
  options.background_plan_seconds = std::numeric_limits<double>::infinity();
  if (update) {
    options.update = [update = std::move(update)] {
      const Scope layer("optimizer");
      update();
    };
  }
  if (progress != nullptr) {
    options.progress = [progress](const StepProgress& made) { show(made, *progress); };
  }
  return options;
}

int call_until_planned(TrainingStep& step, const Batch& batch) {
  const auto planned = [&] {
    try {
      step.plan();
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (int calls = 1; calls <= kMostCalls; ++calls) {
    const bool follows = planned();
    step(batch);
    if (follows) return calls;
  }
  throw Error(detail::concat("the step does not come to run under a plan in ", kMostCalls,
                             " calls; expected one that takes the same course at every call"));
}

}  // namespace remat
