// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <vector>

#include "remat/models/block_runner.h"
#include "remat/models/transformer_layer.h"

namespace remat::models {

// Vision transformer: Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929. The defaults are
// ViT-S/16, the size that Touvron et al. 2020, https://arxiv.org/abs/2012.12877, brought in as
// DeiT-S. Without dropout, so that the fused attention is fused.
struct VitOptions {
  int64_t image = 224;  // pixels per side, a multiple of patch
  int64_t patch = 16;
  int64_t layers = 12;
  int64_t heads = 6;
  int64_t width = 384;
  int64_t classes = 1000;
  bool fused_attention = true;
};

class VitImpl : public torch::nn::Module {
 public:
  explicit VitImpl(const VitOptions& options);
  // images: [batch, 3, image, image] -> logits [batch, classes], from the class token. Each
  // transformer layer is one block.
  at::Tensor forward(const at::Tensor& images, const BlockRunner& run = run_plain);

 private:
  at::Tensor embed(const at::Tensor& images);

  torch::nn::Conv2d patches_{nullptr};
  at::Tensor class_token_, position_;
  std::vector<TransformerLayer> layers_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(Vit);

}  // namespace remat::models
