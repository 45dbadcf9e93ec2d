// SPDX-License-Identifier: Apache-2.0
#include "remat/models/gpt.h"

#include <cmath>

#include "remat/core/error.h"
#include "remat/models/initialise.h"

namespace remat::models {
namespace {

constexpr double kGptNormEpsilon = 1e-5;

TransformerLayerOptions layer_options(const GptOptions& options) {
  return {.attention = {.width = options.width,
                        .heads = options.heads,
                        .causal = true,
                        .fused = options.fused_attention,
                        .dropout = options.attention_dropout},
          .dropout = options.dropout,
          .norm_epsilon = kGptNormEpsilon,
          .gelu = "tanh"};
}

}  // namespace

GptImpl::GptImpl(const GptOptions& options)
    : dropout_(options.dropout),
      token_(register_module("token", torch::nn::Embedding(options.vocabulary, options.width))),
      position_(register_module("position", torch::nn::Embedding(options.context, options.width))),
      norm_(nullptr) {
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(
        register_module(detail::concat("layer", i), TransformerLayer(layer_options(options))));
  }
  norm_ = register_module("norm", layer_norm(options.width, kGptNormEpsilon));
  initialise_normal(*this);
  // Residual branches are scaled down with depth, so that their sum keeps its variance.
  const double residual = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(options.layers));
  torch::NoGradGuard no_grad;
  for (TransformerLayer& layer : layers_) {
    layer->attention->projection->weight.normal_(0, residual);
    layer->feed_forward->contract->weight.normal_(0, residual);
  }
}

at::Tensor GptImpl::embed(const at::Tensor& tokens) {
  Scope scope("embedding");
  const at::Tensor positions = at::arange(tokens.size(1), tokens.options());
  const at::Tensor sum =
      run_layer("token", token_, tokens) + run_layer("position", position_, positions);
  return at::dropout(sum, dropout_, is_training());
}

at::Tensor GptImpl::forward(const at::Tensor& tokens, const BlockRunner& run) {
  at::Tensor x = run_blocks(run, "layer", layers_, embed(tokens));
  x = run_layer("norm", norm_, x);
  Scope scope("output");
  return at::linear(x, token_->weight);
}

}  // namespace remat::models
