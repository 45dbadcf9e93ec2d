// SPDX-License-Identifier: Apache-2.0
#include "remat/models/gpt.h"

#include <cmath>

#include "remat/core/error.h"

namespace remat::models {
namespace {

constexpr double kInitialDeviation = 0.02;

torch::nn::LayerNorm layer_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

GptBlockImpl::GptBlockImpl(const GptOptions& options)
    : heads_(options.heads),
      dropout_(options.dropout),
      norm1_(register_module("norm1", layer_norm(options.width))),
      norm2_(register_module("norm2", layer_norm(options.width))),
      query_key_value_(
          register_module("query_key_value", torch::nn::Linear(options.width, 3 * options.width))),
      projection_(register_module("projection", torch::nn::Linear(options.width, options.width))),
      expand_(register_module("expand", torch::nn::Linear(options.width, 4 * options.width))),
      contract_(register_module("contract", torch::nn::Linear(4 * options.width, options.width))) {
  if (options.width % options.heads != 0) {
    throw Error(detail::concat("[gpt] width ", options.width, " is not a multiple of ",
                               options.heads, " heads; choose one that is"));
  }
  // Residual branches are scaled down with depth, so that their sum keeps its variance.
  const double residual = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(options.layers));
  torch::NoGradGuard no_grad;
  for (auto& linear : {query_key_value_, projection_, expand_, contract_}) {
    linear->weight.normal_(0, kInitialDeviation);
    linear->bias.zero_();
  }
  projection_->weight.normal_(0, residual);
  contract_->weight.normal_(0, residual);
}

at::Tensor GptBlockImpl::attention(const at::Tensor& x) {
  const int64_t batch = x.size(0);
  const int64_t sequence = x.size(1);
  const int64_t width = x.size(2);
  // [batch, sequence, 3 * width] -> 3 of [batch, heads, sequence, width / heads]
  const at::Tensor split = query_key_value_->forward(x)
                               .view({batch, sequence, 3, heads_, width / heads_})
                               .permute({2, 0, 3, 1, 4});
  const at::Tensor mixed = at::scaled_dot_product_attention(
      split[0], split[1], split[2], {}, is_training() ? dropout_ : 0.0, /*is_causal=*/true);
  return projection_->forward(mixed.transpose(1, 2).reshape({batch, sequence, width}));
}

at::Tensor GptBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor y = x + at::dropout(attention(norm1_->forward(x)), dropout_, is_training());
  const at::Tensor hidden = at::gelu(expand_->forward(norm2_->forward(y)), "tanh");
  return y + at::dropout(contract_->forward(hidden), dropout_, is_training());
}

GptImpl::GptImpl(const GptOptions& options)
    : dropout_(options.dropout),
      token_(register_module("token", torch::nn::Embedding(options.vocabulary, options.width))),
      position_(register_module("position", torch::nn::Embedding(options.context, options.width))),
      norm_(nullptr) {
  for (int64_t i = 0; i < options.layers; ++i) {
    blocks_.push_back(register_module(detail::concat("layer", i), GptBlock(options)));
  }
  norm_ = register_module("norm", layer_norm(options.width));
  torch::NoGradGuard no_grad;
  token_->weight.normal_(0, kInitialDeviation);
  position_->weight.normal_(0, kInitialDeviation);
}

at::Tensor GptImpl::forward(const at::Tensor& tokens, const BlockRunner& run) {
  const at::Tensor positions = at::arange(tokens.size(1), tokens.options());
  at::Tensor x =
      at::dropout(token_->forward(tokens) + position_->forward(positions), dropout_, is_training());
  for (const GptBlock& block : blocks_) {
    x = run([block = block](
                const std::vector<at::Tensor>& in) mutable { return block->forward(in[0]); },
            {x});
  }
  return at::linear(norm_->forward(x), token_->weight);
}

}  // namespace remat::models
