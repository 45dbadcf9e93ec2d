// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace remat {

// The optimizers that the tool knows, by name: "none", "sgd" (with momentum) and "adamw".

// --optimizer; what is said of "none" is for --help.
void add_optimizer_option(CLI::App& command, std::string& name, const std::string& none);

// Of one of the other two names.
std::shared_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        const std::vector<at::Tensor>& parameters);

// What it keeps between steps, parameter by parameter.
std::vector<at::Tensor> optimizer_state(const torch::optim::Optimizer& optimizer,
                                        const std::vector<at::Tensor>& parameters);

}  // namespace remat
