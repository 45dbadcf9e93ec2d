// SPDX-License-Identifier: Apache-2.0
#include "remat/models/transformer_layer.h"

#include "remat/models/block_runner.h"

namespace remat::models {

torch::nn::LayerNorm layer_norm(int64_t width, double epsilon) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(epsilon));
}

TransformerLayerImpl::TransformerLayerImpl(const TransformerLayerOptions& options)
    : norm_first_(options.norm_first), dropout_(options.dropout) {
  const int64_t width = options.attention.width;
  norm1_ = register_module("norm1", layer_norm(width, options.norm_epsilon));
  attention = register_module("attention", Attention(options.attention));
  norm2_ = register_module("norm2", layer_norm(width, options.norm_epsilon));
  feed_forward = register_module("feed_forward", FeedForward(width, 4 * width, options.gelu));
}

at::Tensor TransformerLayerImpl::forward(const at::Tensor& x) {
  const auto with_branch = [&](const at::Tensor& in, const char* name, auto& branch,
                               const char* norm_name, torch::nn::LayerNorm& norm) {
    const at::Tensor start = norm_first_ ? run_layer(norm_name, norm, in) : in;
    const at::Tensor sum =
        in + at::dropout(run_layer(name, branch, start), dropout_, is_training());
    return norm_first_ ? sum : run_layer(norm_name, norm, sum);
  };
  const at::Tensor y = with_branch(x, "attention", attention, "norm1", norm1_);
  return with_branch(y, "feed_forward", feed_forward, "norm2", norm2_);
}

}  // namespace remat::models
