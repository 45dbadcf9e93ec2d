// SPDX-License-Identifier: Apache-2.0
#include "remat/models/convnext.h"

#include <algorithm>

#include "remat/core/error.h"
#include "remat/models/initialise.h"
#include "remat/models/transformer_layer.h"

namespace remat::models {
namespace {

constexpr double kConvNeXtNormEpsilon = 1e-6;
constexpr double kInitialLayerScale = 1e-6;

// LayerNorm over the channels of [batch, channels, height, width].
class ChannelNormImpl : public torch::nn::Module {
 public:
  explicit ChannelNormImpl(int64_t channels)
      : norm_(register_module("norm", layer_norm(channels, kConvNeXtNormEpsilon))) {}

  at::Tensor forward(const at::Tensor& x) {
    return norm_->forward(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
  }

 private:
  torch::nn::LayerNorm norm_;
};
TORCH_MODULE(ChannelNorm);

torch::nn::Conv2d patch_convolution(int64_t in, int64_t out, int64_t size) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, size).stride(size));
}

// Zero for the samples whose branch is left out, and the rest scaled up to keep the mean.
at::Tensor drop_branch(const at::Tensor& branch, double drop, bool training) {
  if (!training || drop == 0) return branch;
  Scope scope("drop");
  const at::Tensor kept = at::empty({branch.size(0), 1, 1, 1}, branch.options());
  return branch * kept.bernoulli_(1 - drop).div_(1 - drop);
}

}  // namespace

ConvNextBlockImpl::ConvNextBlockImpl(int64_t channels, double drop) : drop_(drop) {
  depthwise_ = register_module(
      "depthwise",
      torch::nn::Conv2d(
          torch::nn::Conv2dOptions(channels, channels, 7).padding(3).groups(channels)));
  norm_ = register_module("norm", layer_norm(channels, kConvNeXtNormEpsilon));
  feed_forward_ = register_module("feed_forward", FeedForward(channels, 4 * channels));
  layer_scale_ = register_parameter("layer_scale", torch::full({channels}, kInitialLayerScale));
}

at::Tensor ConvNextBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor channels_last = run_layer("depthwise", depthwise_, x).permute({0, 2, 3, 1});
  const at::Tensor y =
      run_layer("feed_forward", feed_forward_, run_layer("norm", norm_, channels_last));
  return x + drop_branch((y * layer_scale_).permute({0, 3, 1, 2}), drop_, is_training());
}

ConvNextImpl::ConvNextImpl(const ConvNextOptions& options) {
  int64_t block_count = 0;
  for (const int64_t blocks : options.blocks) block_count += blocks;
  int64_t channels = options.width;
  int64_t built = 0;
  for (size_t i = 0; i < options.blocks.size(); ++i) {
    Stage& stage = stages_.emplace_back();
    stage.downsample = i == 0 ? NamedLayers{{"conv", patch_convolution(3, channels, 4)},
                                            {"norm", ChannelNorm(channels)}}
                              : NamedLayers{{"norm", ChannelNorm(channels / 2)},
                                            {"conv", patch_convolution(channels / 2, channels, 2)}};
    register_module(detail::concat("downsample", i), stage.downsample);
    for (int64_t k = 0; k < options.blocks[i]; ++k, ++built) {
      const double drop = options.stochastic_depth * static_cast<double>(built) /
                          static_cast<double>(std::max<int64_t>(block_count - 1, 1));
      stage.blocks.push_back(
          register_module(detail::concat("stage", i, "_", k), ConvNextBlock(channels, drop)));
    }
    channels *= 2;
  }
  norm_ = register_module("norm", layer_norm(channels / 2, kConvNeXtNormEpsilon));
  classifier_ = register_module("classifier", torch::nn::Linear(channels / 2, options.classes));
  initialise_normal(*this);
}

at::Tensor ConvNextImpl::forward(const at::Tensor& images, const BlockRunner& run) {
  at::Tensor x = images;
  for (size_t i = 0; i < stages_.size(); ++i) {
    x = run_block(run, detail::concat("downsample", i), stages_[i].downsample, x);
    x = run_blocks(run, detail::concat("stage", i, "."), stages_[i].blocks, x);
  }
  Scope scope("classifier");
  return classifier_->forward(run_layer("norm", norm_, x.mean({2, 3})));
}

}  // namespace remat::models
