// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/model_task.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/budget.h"

namespace remat {
namespace {

// CPU autocast to bfloat16, as a program would switch it on around its forward.
class AutocastGuard {
 public:
  AutocastGuard()
      : enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
        dtype_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastGuard() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(at::kCPU, dtype_);
    at::autocast::set_autocast_enabled(at::kCPU, enabled_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  bool enabled_;
  at::ScalarType dtype_;
};

struct SizeName {
  const char* name;
  int64_t models::ModelSize::*value;
};
constexpr SizeName kSizes[] = {{"batch", &models::ModelSize::batch},
                               {"image", &models::ModelSize::image},
                               {"sequence", &models::ModelSize::sequence},
                               {"layers", &models::ModelSize::layers},
                               {"width", &models::ModelSize::width}};

models::ModelSize asked_size(const ModelOptions& options) {
  return {.batch = options.batch,
          .image = options.image,
          .sequence = options.sequence,
          .layers = options.layers,
          .width = options.width};
}

}  // namespace

models::TrainingTask make_task(const ModelOptions& options, int64_t seed) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  torch::manual_seed(static_cast<uint64_t>(seed));
  models::TrainingTask task = models::find_model(options.model).make(asked_size(options));
  if (options.dtype == "bf16") {
    task.loss = [loss = task.loss](const Batch& batch) {
      const AutocastGuard autocast;
      return loss(batch);
    };
    task.loss_by_block = [loss = task.loss_by_block](const Batch& batch,
                                                     const models::BlockRunner& run) {
      const AutocastGuard autocast;
      return loss(batch, run);
    };
  }
  return task;
}

models::ModelSize size_of(const ModelOptions& options) {
  models::ModelSize size = models::find_model(options.model).defaults;
  const models::ModelSize asked = asked_size(options);
  for (const SizeName& each : kSizes) {
    if (asked.*each.value != 0) size.*each.value = asked.*each.value;
  }
  return size;
}

int64_t parameter_count(const models::TrainingTask& task) {
  int64_t count = 0;
  for (const at::Tensor& parameter : task.module->parameters()) count += parameter.numel();
  return count;
}

std::string size_label(const models::ModelSize& size) {
  std::string label;
  for (const SizeName& each : kSizes) {
    if (size.*each.value == 0) continue;
    label += detail::concat(label.empty() ? "" : ", ", each.name, " ", size.*each.value);
  }
  return label;
}

nlohmann::json size_json(const models::ModelSize& size) {
  nlohmann::json json = nlohmann::json::object();
  for (const SizeName& each : kSizes) {
    if (size.*each.value != 0) json[each.name] = size.*each.value;
  }
  return json;
}

std::string model_label(const ModelOptions& options) {
  const int threads = at::get_num_threads();
  const std::string update = options.updates_inside() ? ", optimizer " + options.optimizer : "";
  return detail::concat(options.model, ", ", size_label(size_of(options)), ", ", options.dtype, update,
                        ", ", threads, threads == 1 ? " thread" : " threads");
}

nlohmann::json model_json(const ModelOptions& options) {
  nlohmann::json json = {{"model", options.model},
                         {"dtype", options.dtype},
                         {"optimizer", options.optimizer},
                         {"threads", at::get_num_threads()}};
  json.update(size_json(size_of(options)));
  return json;
}

void add_model_arguments(CLI::App& command, ModelOptions& options) {
  command.add_option("model", options.model, "A model of the zoo; see remat models")
      ->required()
      ->check([](const std::string& name) { return is_model(name) ? "" : not_a_model(name).substr(2); },
              "")
      ->type_name("MODEL");
  add_size_options(command, options);
}

int with_plain_errors(const std::function<int()>& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    throw Error("LibTorch: " + message.substr(0, message.find('\n')));
  }
}

std::string running_budget_fault(const std::string& text) {
  return text == "auto" ? std::string() : budget_fault(text);
}

int64_t running_budget(const std::string& text, int64_t whole_bytes, const Graph& graph) {
  return text == "auto" ? available_memory()(graph) : parse_budget(text, whole_bytes);
}

}  // namespace remat
