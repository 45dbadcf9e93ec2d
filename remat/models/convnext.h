// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/models/block_runner.h"
#include "remat/models/feed_forward.h"
#include "remat/models/named_layers.h"

namespace remat::models {

// ConvNeXt: Liu et al. 2022, https://arxiv.org/abs/2201.03545. The defaults are ConvNeXt-T, trained
// as in the paper with stochastic depth up to 0.1.
struct ConvNextOptions {
  std::array<int64_t, 4> blocks = {3, 3, 9, 3};  // per stage
  int64_t width = 96;                            // channels of the first stage
  int64_t classes = 1000;
  double stochastic_depth = 0.1;  // of the last block; grows linearly from 0 in the first
};

class ConvNextBlockImpl : public torch::nn::Module {
 public:
  // drop: how likely the residual branch of a sample is left out in training.
  ConvNextBlockImpl(int64_t channels, double drop);
  // [batch, channels, height, width] -> the same shape
  at::Tensor forward(const at::Tensor& x);

 private:
  double drop_;
  torch::nn::Conv2d depthwise_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  FeedForward feed_forward_{nullptr};
  at::Tensor layer_scale_;
};
TORCH_MODULE(ConvNextBlock);

class ConvNextImpl : public torch::nn::Module {
 public:
  explicit ConvNextImpl(const ConvNextOptions& options);
  // images: [batch, 3, height, width], both at least 32 -> logits [batch, classes]. The stem, each
  // downsampling and each ConvNeXt block are one block.
  at::Tensor forward(const at::Tensor& images, const BlockRunner& run = run_plain);

 private:
  struct Stage {
    NamedLayers downsample{nullptr};  // for the first stage the stem
    std::vector<ConvNextBlock> blocks;
  };

  std::vector<Stage> stages_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(ConvNext);

}  // namespace remat::models
