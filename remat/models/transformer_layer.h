// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <string>

#include "remat/models/attention.h"
#include "remat/models/feed_forward.h"

namespace remat::models {

struct TransformerLayerOptions {
  AttentionOptions attention;
  bool norm_first = true;  // before each branch, or after the sum as in the first transformers
  double dropout = 0;      // at the end of both branches
  double norm_epsilon = 1e-5;
  std::string gelu = "none";
};

// Attention and a feed-forward of four times the width, each beside a residual connection.
class TransformerLayerImpl : public torch::nn::Module {
 public:
  explicit TransformerLayerImpl(const TransformerLayerOptions& options);
  // [batch, sequence, width] -> the same shape
  at::Tensor forward(const at::Tensor& x);

  Attention attention{nullptr};
  FeedForward feed_forward{nullptr};

 private:
  bool norm_first_;
  double dropout_;
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
};
TORCH_MODULE(TransformerLayer);

torch::nn::LayerNorm layer_norm(int64_t width, double epsilon);

}  // namespace remat::models
