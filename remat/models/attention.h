// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <cstdint>

namespace remat::models {

struct AttentionOptions {
  int64_t width = 0;
  int64_t heads = 1;  // width must be a multiple of it
  bool causal = false;
  // One call of scaled_dot_product_attention, instead of products, mask, softmax and dropout each
  // on its own. LibTorch's fused CPU kernel has no dropout: with it the call falls apart into
  // separate ops again.
  bool fused = true;
  double dropout = 0;  // of the attention weights
};

// Multi-head self-attention: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762. Query, key and
// value come from one linear map, the same numbers as three.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const AttentionOptions& options);
  // [batch, sequence, width] -> the same shape
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear projection{nullptr};

 private:
  at::Tensor spelled_out(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

  AttentionOptions options_;
  torch::nn::Linear query_key_value_{nullptr};
};
TORCH_MODULE(Attention);

}  // namespace remat::models
