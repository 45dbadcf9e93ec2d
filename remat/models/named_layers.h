// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace remat::models {

// torch::nn::Sequential over named layers from Tensor to Tensor, each run in the Scope of its name.
class NamedLayersImpl : public torch::nn::Module {
 public:
  explicit NamedLayersImpl(std::initializer_list<torch::nn::NamedAnyModule> layers);
  at::Tensor forward(at::Tensor x);

 private:
  std::vector<std::pair<std::string, torch::nn::AnyModule>> layers_;
};

class NamedLayers : public torch::nn::ModuleHolder<NamedLayersImpl> {
 public:
  using torch::nn::ModuleHolder<NamedLayersImpl>::ModuleHolder;
  // A braced list does not reach the constructor through the holder's template.
  NamedLayers(std::initializer_list<torch::nn::NamedAnyModule> layers)
      : ModuleHolder(std::make_shared<NamedLayersImpl>(layers)) {}
};

}  // namespace remat::models
