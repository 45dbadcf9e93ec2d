// SPDX-License-Identifier: Apache-2.0
#include "remat/models/vit.h"

#include "remat/core/error.h"
#include "remat/models/initialise.h"

namespace remat::models {
namespace {

constexpr double kVitNormEpsilon = 1e-6;

}  // namespace

VitImpl::VitImpl(const VitOptions& options) {
  const int64_t width = options.width;
  const int64_t side = options.image / options.patch;
  patches_ = register_module(
      "patches",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, width, options.patch).stride(options.patch)));
  class_token_ = register_parameter("class_token", torch::randn({1, 1, width}) * kInitialDeviation);
  position_ =
      register_parameter("position", torch::randn({1, side * side + 1, width}) * kInitialDeviation);
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(register_module(
        detail::concat("layer", i),
        TransformerLayer(TransformerLayerOptions{
            .attention = {.width = width, .heads = options.heads, .fused = options.fused_attention},
            .norm_epsilon = kVitNormEpsilon})));
  }
  norm_ = register_module("norm", layer_norm(width, kVitNormEpsilon));
  classifier_ = register_module("classifier", torch::nn::Linear(width, options.classes));
  initialise_normal(*this);
}

at::Tensor VitImpl::embed(const at::Tensor& images) {
  Scope scope("embedding");
  // [batch, width, side, side] -> [batch, side * side, width]
  const at::Tensor x = run_layer("patches", patches_, images).flatten(2).transpose(1, 2);
  return at::cat({class_token_.expand({x.size(0), 1, x.size(2)}), x}, 1) + position_;
}

at::Tensor VitImpl::forward(const at::Tensor& images, const BlockRunner& run) {
  at::Tensor x = run_blocks(run, "layer", layers_, embed(images));
  x = run_layer("norm", norm_, x);
  Scope scope("classifier");
  return classifier_->forward(x.select(1, 0));
}

}  // namespace remat::models
