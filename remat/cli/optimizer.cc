// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/optimizer.h"

#include <torch/torch.h>

namespace remat {

void add_optimizer_option(CLI::App& command, std::string& name, const std::string& none) {
  command
      .add_option("--optimizer", name,
                  "Updates inside of the step, with the optimizer's state in its memory: sgd (with "
                  "momentum) or "
                  "adamw. none: " +
                      none)
      ->check(CLI::IsMember({"none", "sgd", "adamw"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group("The model");
}

std::shared_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        const std::vector<at::Tensor>& parameters) {
  // Rates that the models of the zoo learn at from the first steps on.
  if (name == "sgd") {
    return std::make_shared<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(0.002).momentum(0.9));
  }
  return std::make_shared<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1e-3));
}

std::vector<at::Tensor> optimizer_state(const torch::optim::Optimizer& optimizer,
                                        const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> tensors;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) tensors.push_back(tensor);
  };
  for (const at::Tensor& parameter : parameters) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    if (const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(found->second.get())) {
      add(sgd->momentum_buffer());
    }
    if (const auto* adamw =
            dynamic_cast<const torch::optim::AdamWParamState*>(found->second.get())) {
      add(adamw->exp_avg());
      add(adamw->exp_avg_sq());
    }
  }
  return tensors;
}

}  // namespace remat
