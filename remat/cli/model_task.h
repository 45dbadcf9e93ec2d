// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "remat/cli/model_source.h"
#include "remat/cli/progress.h"
#include "remat/libtorch/capture.h"
#include "remat/libtorch/measure.h"
#include "remat/models/zoo.h"

namespace remat {

// The model of the options, from a seed: the same options and seed give the same parameters. With
// bf16, the loss runs under LibTorch's autocast. Sets the number of threads. Throws Error.
models::TrainingTask make_task(const ModelOptions& options, int64_t seed);

// The size that the model is made at, defaults filled in; 0 where a size does not apply.
models::ModelSize size_of(const ModelOptions& options);

// "batch 8, image 224, width 64": the sizes that are not 0.
std::string size_label(const models::ModelSize& size);
nlohmann::json size_json(const models::ModelSize& size);

int64_t parameter_count(const models::TrainingTask& task);

// "resnet50, batch 8, image 224, width 64, f32, 2 threads", and the same as JSON keys.
std::string model_label(const ModelOptions& options);
nlohmann::json model_json(const ModelOptions& options);

Recording capture_task(const models::TrainingTask& task, const Batch& batch);

// A captured step with the times of its ops.
struct MeasuredStep {
  Recording recording;
  Measurement measurement;
};
MeasuredStep capture_and_measure(const models::TrainingTask& task, const Batch& batch,
                                 Progress& progress);

// The model's name as a positional argument, checked, and the flags for its size.
void add_model_arguments(CLI::App& command, ModelOptions& options);

// Calls `work`. What LibTorch throws becomes an Error of one line, without the stack it comes with.
int with_plain_errors(const std::function<int()>& work);

// The commands of this build.
void add_models_command(CLI::App& app, int& exit_code);
void add_profile_command(CLI::App& app, int& exit_code);
void add_run_command(CLI::App& app, int& exit_code);

}  // namespace remat
