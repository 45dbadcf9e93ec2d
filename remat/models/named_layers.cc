// SPDX-License-Identifier: Apache-2.0
#include "remat/models/named_layers.h"

#include "remat/libtorch/scope.h"

namespace remat::models {

NamedLayersImpl::NamedLayersImpl(std::initializer_list<torch::nn::NamedAnyModule> layers) {
  for (const torch::nn::NamedAnyModule& layer : layers) {
    register_module(layer.name(), layer.module().ptr());
    layers_.emplace_back(layer.name(), layer.module());
  }
}

at::Tensor NamedLayersImpl::forward(at::Tensor x) {
  for (auto& [name, layer] : layers_) {
    Scope scope(name);
    x = layer.forward(std::move(x));
  }
  return x;
}

}  // namespace remat::models
