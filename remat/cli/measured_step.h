// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "remat/cli/model_source.h"
#include "remat/cli/progress.h"
#include "remat/core/plan_file.h"
#include "remat/libtorch/capture.h"
#include "remat/libtorch/channel.h"
#include "remat/libtorch/training_step.h"
#include "remat/models/zoo.h"

namespace remat {

// Where values go that are offloaded, and how fast it is. Without a folder, or without offloading, nothing.
struct Offloading {
  std::shared_ptr<detail::Channel> channel = {};
  std::optional<ChannelModel> model = {};
};
Offloading open_offloading(const MoveOptions& options);

// Forward and backward, recorded, with the moves that may be planned. Says on `progress`, if there is one, how
// far it is.
Recording capture_task(const models::TrainingTask& task, const Batch& batch, bool pack,
                       const Offloading& offloading, Progress* progress = nullptr);

// A step of a model with the times of its ops, and what a saved plan says about where it comes from.
struct MeasuredStep {
  Graph graph = {};
  // Of forward and backward. None where the update is inside: there a TrainingStep records.
  std::optional<Recording> recording = {};
  SavedCourse course = {};  // without graph and plan
  int64_t eager_peak_bytes = 0;
  int64_t step_ns = 0;  // of the whole step with everything kept: a median
  int rounds = 0;
};

// As options.optimizer has it. With an update inside, parameters are not what they were afterwards. Throws DoesNotFit
// where the plain step needs more memory than there is left.
MeasuredStep capture_and_measure(const ModelOptions& options, const Offloading& offloading,
                                 const models::TrainingTask& task, const Batch& batch, Progress& progress);
// The same, of one that does not fit either: a TrainingStep records it with its values in a file, and times its ops under
// a plan; that is said on standard error. Without a recording then. Throws Error where no plan fits.
MeasuredStep measure_within_memory(const ModelOptions& options, const Offloading& offloading,
                                   const models::TrainingTask& task, const Batch& batch, Progress& progress);

// What a recorded or a plain step may take of the memory that is left.
int64_t bytes_for_a_step();
// For those that need the plain step: what else can be done with a model that does not fit.
[[noreturn]] void throw_too_large(const std::string& model);

// The options of a training step that updates inside, with everything kept and a measurement to the
// end. Says on `progress` how far its first calls are.
TrainingStepOptions step_with_update(std::function<void()> update, bool pack, const Offloading& offloading,
                                     Progress* progress);

// Calls the step until a call has run under a plan: the first courses may be those of a start,
// before the optimizer has a state. Returns the number of calls. Throws Error where that does not
// come to pass.
int call_until_planned(TrainingStep& step, const Batch& batch);

}  // namespace remat
