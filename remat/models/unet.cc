// SPDX-License-Identifier: Apache-2.0
#include "remat/models/unet.h"

#include "remat/core/error.h"

namespace remat::models {
namespace {

NamedLayers double_convolution(int64_t in, int64_t out) {
  auto convolution = [](int64_t from, int64_t to) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1).bias(false));
  };
  auto relu = [] { return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)); };
  return NamedLayers{
      {"conv1", convolution(in, out)},  {"norm1", torch::nn::BatchNorm2d(out)}, {"relu1", relu()},
      {"conv2", convolution(out, out)}, {"norm2", torch::nn::BatchNorm2d(out)}, {"relu2", relu()}};
}

}  // namespace

UNetImpl::UNetImpl(const UNetOptions& options) {
  int64_t channels = options.width;
  down_.push_back(register_module("down0", double_convolution(options.input_channels, channels)));
  for (int64_t level = 1; level <= options.levels; ++level) {
    down_.push_back(
        register_module(detail::concat("down", level), double_convolution(channels, 2 * channels)));
    channels *= 2;
  }
  for (int64_t level = options.levels; level >= 1; --level) {
    widen_.push_back(register_module(
        detail::concat("widen", level),
        torch::nn::ConvTranspose2d(
            torch::nn::ConvTranspose2dOptions(channels, channels / 2, 2).stride(2))));
    up_.push_back(
        register_module(detail::concat("up", level), double_convolution(channels, channels / 2)));
    channels /= 2;
  }
  classifier_ = register_module(
      "classifier", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, options.classes, 1)));
}

at::Tensor UNetImpl::forward(const at::Tensor& images, const BlockRunner& run) {
  std::vector<at::Tensor> levels;
  for (size_t i = 0; i < down_.size(); ++i) {
    levels.push_back(run(
        [down = down_[i], name = detail::concat("down", i),
         halve = i > 0](const std::vector<at::Tensor>& in) mutable {
          Scope scope(name);
          return down->forward(halve ? at::max_pool2d(in[0], 2) : in[0]);
        },
        {levels.empty() ? images : levels.back()}));
  }
  at::Tensor x = levels.back();
  levels.pop_back();
  for (size_t i = 0; i < up_.size(); ++i) {
    x = run(
        [widen = widen_[i], up = up_[i],
         name = detail::concat("up", up_.size() - i)](const std::vector<at::Tensor>& in) mutable {
          Scope scope(name);
          return up->forward(at::cat({in[1], run_layer("widen", widen, in[0])}, 1));
        },
        {x, levels.back()});
    levels.pop_back();
  }
  return run_layer("classifier", classifier_, x);
}

}  // namespace remat::models
