// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/models/block_runner.h"
#include "remat/models/named_layers.h"

namespace remat::models {

// Residual networks for images: He et al. 2015, https://arxiv.org/abs/1512.03385, with the stride
// on the 3x3 convolution of a bottleneck, as everyone trains them.
struct ResNetOptions {
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};  // per stage
  bool bottleneck = false;
  int64_t width = 64;  // channels of the first stage
  int64_t classes = 1000;
  int64_t input_channels = 3;

  // The published depths: 18, 34, 50, 101, 152. Any other throws remat::Error.
  static ResNetOptions of_depth(int64_t depth);
};

class ResidualBlockImpl : public torch::nn::Module {
 public:
  ResidualBlockImpl(int64_t input_channels, int64_t channels, int64_t stride, bool bottleneck);
  at::Tensor forward(const at::Tensor& x);

 private:
  NamedLayers body_{nullptr};
  NamedLayers shortcut_{nullptr};
};
TORCH_MODULE(ResidualBlock);

class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const ResNetOptions& options);
  // images: [batch, input_channels, height, width] -> logits [batch, classes]. The stem and each
  // residual block are one block; pooling and classifier run plainly.
  at::Tensor forward(const at::Tensor& images, const BlockRunner& run = run_plain);

 private:
  NamedLayers stem_{nullptr};
  std::vector<std::pair<std::string, ResidualBlock>> blocks_;  // with their scopes: layer1.0
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(ResNet);

}  // namespace remat::models
