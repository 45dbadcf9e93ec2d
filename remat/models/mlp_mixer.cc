// SPDX-License-Identifier: Apache-2.0
#include "remat/models/mlp_mixer.h"

#include "remat/core/error.h"
#include "remat/models/initialise.h"
#include "remat/models/transformer_layer.h"

namespace remat::models {
namespace {

constexpr double kMixerNormEpsilon = 1e-6;

}  // namespace

MixerLayerImpl::MixerLayerImpl(int64_t tokens, int64_t width) {
  norm1_ = register_module("norm1", layer_norm(width, kMixerNormEpsilon));
  mix_tokens_ = register_module("mix_tokens", FeedForward(tokens, width / 2));
  norm2_ = register_module("norm2", layer_norm(width, kMixerNormEpsilon));
  mix_channels_ = register_module("mix_channels", FeedForward(width, 4 * width));
}

at::Tensor MixerLayerImpl::forward(const at::Tensor& x) {
  const at::Tensor tokens_last = run_layer("norm1", norm1_, x).transpose(1, 2);
  const at::Tensor y = x + run_layer("mix_tokens", mix_tokens_, tokens_last).transpose(1, 2);
  return y + run_layer("mix_channels", mix_channels_, run_layer("norm2", norm2_, y));
}

MlpMixerImpl::MlpMixerImpl(const MlpMixerOptions& options) {
  const int64_t side = options.image / options.patch;
  patches_ = register_module(
      "patches",
      torch::nn::Conv2d(
          torch::nn::Conv2dOptions(3, options.width, options.patch).stride(options.patch)));
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(
        register_module(detail::concat("layer", i), MixerLayer(side * side, options.width)));
  }
  norm_ = register_module("norm", layer_norm(options.width, kMixerNormEpsilon));
  classifier_ = register_module("classifier", torch::nn::Linear(options.width, options.classes));
  initialise_normal(*this);
}

at::Tensor MlpMixerImpl::forward(const at::Tensor& images, const BlockRunner& run) {
  at::Tensor x;
  {
    Scope scope("embedding");
    // [batch, width, side, side] -> [batch, side * side, width]
    x = run_layer("patches", patches_, images).flatten(2).transpose(1, 2);
  }
  x = run_layer("norm", norm_, run_blocks(run, "layer", layers_, x));
  Scope scope("classifier");
  return classifier_->forward(x.mean(1));
}

}  // namespace remat::models
