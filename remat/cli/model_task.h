// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "remat/cli/model_source.h"
#include "remat/libtorch/tape.h"
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

// "resnet50, batch 8, image 224, width 64, f32, optimizer adamw, 2 threads", and the same as JSON keys.
std::string model_label(const ModelOptions& options);
nlohmann::json model_json(const ModelOptions& options);

// The model's name as a positional argument, checked, and the flags for its size.
void add_model_arguments(CLI::App& command, ModelOptions& options);

// Calls `work`. What LibTorch throws becomes an Error of one line, without the stack it comes with.
int with_plain_errors(const std::function<int()>& work);

// The commands of this build.
void add_models_command(CLI::App& app, int& exit_code);
void add_profile_command(CLI::App& app, int& exit_code);
void add_run_command(CLI::App& app, int& exit_code);
void add_fit_command(CLI::App& app, int& exit_code);
void add_sweep_command(CLI::App& app, int& exit_code);

// What is wrong with the budget of something that runs, or nothing: as budget_fault, and "auto".
std::string running_budget_fault(const std::string& text);
// The bytes of such a budget. "auto" is what the machine or the cgroup has left, less a tenth, beside the externals of
// the graph, which are there already.
int64_t running_budget(const std::string& text, int64_t whole_bytes, const Graph& graph);

}  // namespace remat
