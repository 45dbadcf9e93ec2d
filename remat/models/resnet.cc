// SPDX-License-Identifier: Apache-2.0
#include "remat/models/resnet.h"

#include "remat/core/error.h"

namespace remat::models {
namespace {

torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

torch::nn::ReLU relu() { return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)); }

int64_t expansion(bool bottleneck) { return bottleneck ? 4 : 1; }

}  // namespace

ResNetOptions ResNetOptions::of_depth(int64_t depth) {
  switch (depth) {
    case 18: return {.blocks = {2, 2, 2, 2}, .bottleneck = false};
    case 34: return {.blocks = {3, 4, 6, 3}, .bottleneck = false};
    case 50: return {.blocks = {3, 4, 6, 3}, .bottleneck = true};
    case 101: return {.blocks = {3, 4, 23, 3}, .bottleneck = true};
    case 152: return {.blocks = {3, 8, 36, 3}, .bottleneck = true};
    default:
      throw Error(detail::concat("[resnet] depth ", depth,
                                 " is not one of the published ones; use 18, 34, 50, 101 or 152, "
                                 "or fill ResNetOptions yourself"));
  }
}

ResidualBlockImpl::ResidualBlockImpl(int64_t input_channels, int64_t channels, int64_t stride,
                                     bool bottleneck) {
  const int64_t output_channels = channels * expansion(bottleneck);
  if (bottleneck) {
    body_ = NamedLayers{{"conv1", convolution(input_channels, channels, 1, 1)},
                        {"norm1", torch::nn::BatchNorm2d(channels)},
                        {"relu1", relu()},
                        {"conv2", convolution(channels, channels, 3, stride)},
                        {"norm2", torch::nn::BatchNorm2d(channels)},
                        {"relu2", relu()},
                        {"conv3", convolution(channels, output_channels, 1, 1)},
                        {"norm3", torch::nn::BatchNorm2d(output_channels)}};
  } else {
    body_ = NamedLayers{{"conv1", convolution(input_channels, channels, 3, stride)},
                        {"norm1", torch::nn::BatchNorm2d(channels)},
                        {"relu1", relu()},
                        {"conv2", convolution(channels, channels, 3, 1)},
                        {"norm2", torch::nn::BatchNorm2d(channels)}};
  }
  register_module("body", body_);
  if (stride != 1 || input_channels != output_channels) {
    shortcut_ = register_module(
        "shortcut", NamedLayers{{"conv", convolution(input_channels, output_channels, 1, stride)},
                                {"norm", torch::nn::BatchNorm2d(output_channels)}});
  }
}

at::Tensor ResidualBlockImpl::forward(const at::Tensor& x) {
  at::Tensor y = body_->forward(x);
  y += shortcut_.is_empty() ? x : run_layer("shortcut", shortcut_, x);
  return y.relu_();
}

ResNetImpl::ResNetImpl(const ResNetOptions& options) {
  stem_ = register_module(
      "stem",
      NamedLayers{
          {"conv", convolution(options.input_channels, options.width, 7, 2)},
          {"norm", torch::nn::BatchNorm2d(options.width)},
          {"relu", relu()},
          {"pool", torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1))}});
  int64_t input_channels = options.width;
  int64_t channels = options.width;
  for (size_t stage = 0; stage < options.blocks.size(); ++stage) {
    for (int64_t i = 0; i < options.blocks[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks_.emplace_back(
          detail::concat("layer", stage + 1, ".", i),
          register_module(detail::concat("layer", stage + 1, "_", i),
                          ResidualBlock(input_channels, channels, stride, options.bottleneck)));
      input_channels = channels * expansion(options.bottleneck);
    }
    channels *= 2;
  }
  classifier_ = register_module("classifier", torch::nn::Linear(input_channels, options.classes));
}

at::Tensor ResNetImpl::forward(const at::Tensor& images, const BlockRunner& run) {
  at::Tensor x = run_block(run, "stem", stem_, images);
  for (const auto& [name, block] : blocks_) {
    x = run_block(run, name, block, x);
  }
  Scope scope("classifier");
  return classifier_->forward(x.mean({2, 3}));
}

}  // namespace remat::models
