// SPDX-License-Identifier: Apache-2.0
#include "remat/models/initialise.h"

namespace remat::models {
namespace {

template <typename Layer>
bool initialise_if(torch::nn::Module& module) {
  Layer* layer = module.as<Layer>();
  if (layer == nullptr) return false;
  layer->weight.normal_(0, kInitialDeviation);
  if constexpr (!std::is_same_v<Layer, torch::nn::EmbeddingImpl>) {
    if (layer->bias.defined()) layer->bias.zero_();
  }
  return true;
}

}  // namespace

void initialise_normal(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  module.apply([](torch::nn::Module& part) {
    initialise_if<torch::nn::LinearImpl>(part) || initialise_if<torch::nn::Conv2dImpl>(part) ||
        initialise_if<torch::nn::EmbeddingImpl>(part);
  });
}

}  // namespace remat::models
