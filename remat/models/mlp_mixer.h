// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <vector>

#include "remat/models/block_runner.h"
#include "remat/models/feed_forward.h"

namespace remat::models {

// MLP-Mixer: Tolstikhin et al. 2021, https://arxiv.org/abs/2105.01601. The defaults are B/16. The
// hidden layer is half the width where tokens are mixed and four times the width where channels
// are. Without the paper's stochastic depth.
struct MlpMixerOptions {
  int64_t image = 224;  // pixels per side, a multiple of patch
  int64_t patch = 16;
  int64_t layers = 12;
  int64_t width = 768;
  int64_t classes = 1000;
};

class MixerLayerImpl : public torch::nn::Module {
 public:
  MixerLayerImpl(int64_t tokens, int64_t width);
  // [batch, tokens, width] -> the same shape
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  FeedForward mix_tokens_{nullptr}, mix_channels_{nullptr};
};
TORCH_MODULE(MixerLayer);

class MlpMixerImpl : public torch::nn::Module {
 public:
  explicit MlpMixerImpl(const MlpMixerOptions& options);
  // images: [batch, 3, image, image] -> logits [batch, classes], from the mean over tokens. Each
  // mixer layer is one block.
  at::Tensor forward(const at::Tensor& images, const BlockRunner& run = run_plain);

 private:
  torch::nn::Conv2d patches_{nullptr};
  std::vector<MixerLayer> layers_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(MlpMixer);

}  // namespace remat::models
