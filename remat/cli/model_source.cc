// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/model_source.h"

#include <algorithm>

#include "remat/cli/command.h"
#include "remat/cli/measured_step.h"
#include "remat/cli/model_task.h"
#include "remat/cli/optimizer.h"
#include "remat/core/error.h"
#include "remat/libtorch/saved_plan.h"

namespace remat {

void add_model_commands(CLI::App& app, int& exit_code) {
  add_models_command(app, exit_code);
  add_profile_command(app, exit_code);
  add_run_command(app, exit_code);
  add_fit_command(app, exit_code);
  add_sweep_command(app, exit_code);
}

void add_size_options(CLI::App& command, ModelOptions& options) {
  const std::string group = "The model";
  const auto size = [&](const char* flag, int64_t& value, const char* what) {
    command.add_option(flag, value, what)
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
        ->type_name("N")
        ->group(group);
  };
  size("--batch", options.batch, "Samples in a batch; without it, as for all sizes, the model's default");
  size("--image", options.image, "Pixels per side");
  size("--seq", options.sequence, "Tokens per sample");
  size("--layers", options.layers, "Blocks, or layers");
  size("--width", options.width, "Channels of the first stage, or of every layer");
  command
      .add_option("--dtype", options.dtype,
                  "f32, or bf16: the loss under LibTorch's autocast")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  command.add_option("--threads", options.threads, "Threads for LibTorch; its own choice otherwise")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->group(group);
}

void add_update_option(CLI::App& command, ModelOptions& options) {
  add_optimizer_option(command, options.optimizer,
                       "forward and backward only, with the update outside of the step");
}

void add_offload_option(CLI::App& command, MoveOptions& options) {
  command
      .add_option("--offload", options.folder,
                  "Values may lie on a disk while they are idle, in a file without a name in this folder")
      ->check(CLI::ExistingDirectory)
      ->type_name("FOLDER");
}

bool is_model(const std::string& name) {
  return std::ranges::any_of(models::zoo(),
                             [&](const models::ZooEntry& entry) { return entry.name == name; });
}

std::string not_a_model(const std::string& name) {
  try {
    models::find_model(name);
    return {};
  } catch (const Error& error) {
    return "; " + without_verb(error.what());
  }
}

MeasuredGraph measured_graph(const ModelOptions& options) {
  MeasuredGraph made;
  with_plain_errors([&] {
    const models::TrainingTask task = make_task(options, 1);
    Progress progress;
    MeasuredStep step = measure_within_memory(options, open_offloading(options.moves), task, task.make_batch(1), progress);
    made = {std::move(step.graph), plan_file_of({}), std::move(step.course)};
    return int{kDone};
  });
  return made;
}

}  // namespace remat
