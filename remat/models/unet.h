// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <vector>

#include "remat/models/block_runner.h"
#include "remat/models/named_layers.h"

namespace remat::models {

// U-Net for segmentation: Ronneberger et al. 2015, https://arxiv.org/abs/1505.04597, with padding,
// so that the output has the size of the input, and BatchNorm. The defaults have the layers and the
// parameter count of the widely used https://github.com/milesial/Pytorch-UNet (3 channels, 2
// classes).
struct UNetOptions {
  int64_t input_channels = 3;
  int64_t classes = 2;
  int64_t levels = 4;  // how often the image is halved
  int64_t width = 64;  // channels of the first level
};

class UNetImpl : public torch::nn::Module {
 public:
  explicit UNetImpl(const UNetOptions& options);
  // images: [batch, input_channels, height, width], both sizes multiples of 2^levels -> logits
  // [batch, classes, height, width]. Each level of the way down and of the way up is one block.
  at::Tensor forward(const at::Tensor& images, const BlockRunner& run = run_plain);

 private:
  std::vector<NamedLayers> down_;
  std::vector<torch::nn::ConvTranspose2d> widen_;
  std::vector<NamedLayers> up_;
  torch::nn::Conv2d classifier_{nullptr};
};
TORCH_MODULE(UNet);

}  // namespace remat::models
