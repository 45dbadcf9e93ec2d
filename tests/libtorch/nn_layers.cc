// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/nn_modules.h"

namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using at::Tensor;

// Pads by one on each side, or by one and two.
template <typename Pad>
ProgramCase pad(const std::string& name, const Sizes& sizes) {
  return layer(name, sizes, [] { return Pad(1); });
}

template <typename Pad, typename Options>
ProgramCase constant_pad(const std::string& name, const Sizes& sizes) {
  return layer(name, sizes, [] { return Pad(Options(1, 0.5)); });
}

// A pool and its inverse: the indices are made inside of the step.
template <typename Pool, typename Unpool>
ProgramCase unpool(const std::string& name, const Sizes& sizes) {
  return module_case(
      name, [] { return Unpool(2); }, [=] { return Batch{torch::randn(sizes)}; },
      [pool = Pool(2).ptr()](auto& impl, const Tensor& input, const Batch&) {
        const auto [output, indices] = pool->forward_with_indices(input);
        return impl.forward(output, indices);
      });
}

template <typename Mode>
ProgramCase upsample(const std::string& name, const Sizes& sizes, Mode mode) {
  return layer(name, sizes, [=] {
    const std::vector<double> scale(sizes.size() - 2, 2.0);
    return nn::Upsample(nn::UpsampleOptions().scale_factor(scale).mode(mode));
  });
}

}  // namespace

std::vector<ProgramCase> activation_modules() {
  const Sizes sizes = {32, 24};
  return {
      layer("ELU", sizes, [] { return nn::ELU(); }),
      layer("SELU", sizes, [] { return nn::SELU(); }),
      layer("Hardshrink", sizes, [] { return nn::Hardshrink(); }),
      layer("Hardtanh", sizes, [] { return nn::Hardtanh(); }),
      layer("LeakyReLU", sizes, [] { return nn::LeakyReLU(); }),
      layer("LogSigmoid", sizes, [] { return nn::LogSigmoid(); }),
      layer("Softmax", sizes, [] { return nn::Softmax(1); }),
      layer("Softmin", sizes, [] { return nn::Softmin(1); }),
      layer("LogSoftmax", sizes, [] { return nn::LogSoftmax(1); }),
      layer("Softmax2d", {4, 3, 12, 12}, [] { return nn::Softmax2d(); }),
      layer("PReLU", sizes, [] { return nn::PReLU(nn::PReLUOptions().num_parameters(24)); }),
      layer("ReLU", sizes, [] { return nn::ReLU(); }),
      layer("ReLUInPlace", sizes, [] { return nn::ReLU(nn::ReLUOptions(true)); }),
      layer("ReLU6", sizes, [] { return nn::ReLU6(); }),
      layer("RReLU", sizes, [] { return nn::RReLU(); }),
      layer("RReLUInPlace", sizes, [] { return nn::RReLU(nn::RReLUOptions().inplace(true)); }),
      layer("CELU", sizes, [] { return nn::CELU(); }),
      layer("GLU", sizes, [] { return nn::GLU(); }),
      layer("GELU", sizes, [] { return nn::GELU(); }),
      layer("GELUByTanh", sizes, [] { return nn::GELU(nn::GELUOptions().approximate("tanh")); }),
      layer("SiLU", sizes, [] { return nn::SiLU(); }),
      layer("Mish", sizes, [] { return nn::Mish(); }),
      layer("Sigmoid", sizes, [] { return nn::Sigmoid(); }),
      layer("Softplus", sizes, [] { return nn::Softplus(); }),
      layer("Softshrink", sizes, [] { return nn::Softshrink(); }),
      layer("Softsign", sizes, [] { return nn::Softsign(); }),
      layer("Tanh", sizes, [] { return nn::Tanh(); }),
      layer("Tanhshrink", sizes, [] { return nn::Tanhshrink(); }),
      layer("Threshold", sizes, [] { return nn::Threshold(0.1, 0.2); }),
      layer("Dropout", sizes, [] { return nn::Dropout(0.3); }),
      layer("DropoutInPlace", sizes,
            [] { return nn::Dropout(nn::DropoutOptions(0.3).inplace(true)); }),
      layer("Dropout2d", {4, 3, 12, 12}, [] { return nn::Dropout2d(0.3); }),
      layer("Dropout3d", {4, 3, 4, 6, 6}, [] { return nn::Dropout3d(0.3); }),
      layer("AlphaDropout", sizes, [] { return nn::AlphaDropout(0.3); }),
      layer("FeatureAlphaDropout", {4, 3, 12, 12}, [] { return nn::FeatureAlphaDropout(0.3); }),
  };
}

std::vector<ProgramCase> layer_modules() {
  const Sizes one = {4, 4, 32}, two = {2, 4, 16, 16}, three = {2, 4, 8, 8, 8};
  return {
      layer("Linear", {32, 16}, [] { return nn::Linear(16, 24); }),
      layer("Identity", {32, 16}, [] { return nn::Identity(); }),
      layer("Flatten", two, [] { return nn::Flatten(); }),
      layer("Unflatten", {64, 12}, [] { return nn::Unflatten(nn::UnflattenOptions(1, {3, 4})); }),
      module_case(
          "Bilinear", [] { return nn::Bilinear(4, 3, 16); },
          [] { return Batch{torch::randn({64, 4}), torch::randn({64, 3})}; },
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input, batch[1]);
          }),
      layer("Sequential", {64, 4},
            [] { return nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2)); }),
      layer("Conv1d", one, [] { return nn::Conv1d(nn::Conv1dOptions(4, 6, 3).dilation(2)); }),
      layer("Conv2d", two, [] { return nn::Conv2d(nn::Conv2dOptions(4, 6, 3).groups(2)); }),
      layer("Conv2dCircular", two,
            [] {
              return nn::Conv2d(
                  nn::Conv2dOptions(4, 6, 3).padding(1).padding_mode(torch::kCircular));
            }),
      layer("Conv3d", three, [] { return nn::Conv3d(nn::Conv3dOptions(4, 2, 3).stride(1)); }),
      layer("ConvTranspose1d", one,
            [] { return nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 3).stride(2)); }),
      layer("ConvTranspose2d", two,
            [] { return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 3).stride(2)); }),
      layer("ConvTranspose3d", three,
            [] { return nn::ConvTranspose3d(nn::ConvTranspose3dOptions(4, 2, 3)); }),
      layer("PixelShuffle", two, [] { return nn::PixelShuffle(2); }),
      layer("PixelUnshuffle", two, [] { return nn::PixelUnshuffle(2); }),
      layer("Fold", {4, 12, 49}, [] { return nn::Fold(nn::FoldOptions({8, 8}, {2, 2})); }),
      layer("Unfold", two, [] { return nn::Unfold(nn::UnfoldOptions({2, 2})); }),
      layer("BatchNorm1d", one, [] { return nn::BatchNorm1d(4); }),
      layer("BatchNorm2d", two, [] { return nn::BatchNorm2d(4); }),
      layer("BatchNorm2dWithoutMomentum", two,
            [] { return nn::BatchNorm2d(nn::BatchNorm2dOptions(4).momentum(std::nullopt)); }),
      layer("BatchNorm3d", three, [] { return nn::BatchNorm3d(4); }),
      layer("InstanceNorm1d", one, [] { return nn::InstanceNorm1d(4); }),
      layer("InstanceNorm2d", two,
            [] {
              return nn::InstanceNorm2d(
                  nn::InstanceNorm2dOptions(4).affine(true).track_running_stats(true));
            }),
      layer("InstanceNorm3d", three, [] { return nn::InstanceNorm3d(4); }),
      layer("LayerNorm", {32, 16}, [] { return nn::LayerNorm(nn::LayerNormOptions({16})); }),
      layer("LocalResponseNorm", two, [] { return nn::LocalResponseNorm(2); }),
      layer("GroupNorm", two, [] { return nn::GroupNorm(2, 4); }),
      layer("AvgPool1d", one, [] { return nn::AvgPool1d(2); }),
      layer("AvgPool2d", two, [] { return nn::AvgPool2d(2); }),
      layer("AvgPool3d", three, [] { return nn::AvgPool3d(2); }),
      layer("MaxPool1d", one, [] { return nn::MaxPool1d(2); }),
      layer("MaxPool2d", two, [] { return nn::MaxPool2d(2); }),
      layer("MaxPool3d", three, [] { return nn::MaxPool3d(2); }),
      layer("AdaptiveMaxPool1d", one, [] { return nn::AdaptiveMaxPool1d(3); }),
      layer("AdaptiveMaxPool2d", two,
            [] { return nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({3, 2})); }),
      layer("AdaptiveMaxPool3d", three,
            [] { return nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({3, 2, 2})); }),
      layer("AdaptiveAvgPool1d", one, [] { return nn::AdaptiveAvgPool1d(3); }),
      layer("AdaptiveAvgPool2d", two,
            [] { return nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 2})); }),
      layer("AdaptiveAvgPool3d", three,
            [] { return nn::AdaptiveAvgPool3d(nn::AdaptiveAvgPool3dOptions({3, 2, 2})); }),
      unpool<nn::MaxPool1d, nn::MaxUnpool1d>("MaxUnpool1d", one),
      unpool<nn::MaxPool2d, nn::MaxUnpool2d>("MaxUnpool2d", two),
      unpool<nn::MaxPool3d, nn::MaxUnpool3d>("MaxUnpool3d", three),
      layer("FractionalMaxPool2d", two,
            [] {
              return nn::FractionalMaxPool2d(
                  nn::FractionalMaxPool2dOptions(2).output_size(torch::ExpandingArray<2>({5, 4})));
            }),
      layer("FractionalMaxPool3d", three,
            [] {
              return nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(
                  torch::ExpandingArray<3>({5, 4, 3})));
            }),
      layer("LPPool1d", one, [] { return nn::LPPool1d(nn::LPPool1dOptions(2, 3)); }),
      layer("LPPool2d", two, [] { return nn::LPPool2d(nn::LPPool2dOptions(2, {3, 2})); }),
      layer("LPPool3d", three, [] { return nn::LPPool3d(nn::LPPool3dOptions(2, {2, 2, 2})); }),
      pad<nn::ReflectionPad1d>("ReflectionPad1d", one),
      pad<nn::ReflectionPad2d>("ReflectionPad2d", two),
      pad<nn::ReflectionPad3d>("ReflectionPad3d", three),
      pad<nn::ReplicationPad1d>("ReplicationPad1d", one),
      pad<nn::ReplicationPad2d>("ReplicationPad2d", two),
      pad<nn::ReplicationPad3d>("ReplicationPad3d", three),
      pad<nn::ZeroPad1d>("ZeroPad1d", one),
      pad<nn::ZeroPad2d>("ZeroPad2d", two),
      pad<nn::ZeroPad3d>("ZeroPad3d", three),
      constant_pad<nn::ConstantPad1d, nn::ConstantPad1dOptions>("ConstantPad1d", one),
      constant_pad<nn::ConstantPad2d, nn::ConstantPad2dOptions>("ConstantPad2d", two),
      constant_pad<nn::ConstantPad3d, nn::ConstantPad3dOptions>("ConstantPad3d", three),
      upsample("UpsampleNearest1d", one, torch::kNearest),
      upsample("UpsampleNearest2d", two, torch::kNearest),
      upsample("UpsampleNearest3d", three, torch::kNearest),
      upsample("UpsampleLinear", one, torch::kLinear),
      upsample("UpsampleBilinear", two, torch::kBilinear),
      upsample("UpsampleBicubic", two, torch::kBicubic),
      upsample("UpsampleTrilinear", three, torch::kTrilinear),
      module_case(
          "GridSample", [] { return nn::Linear(4, 6); },
          [] { return Batch{torch::randn({2, 4}), torch::randn({2, 3, 16, 16})}; },
          [](auto& impl, const Tensor& input, const Batch& batch) {
            const Tensor grid =
                F::affine_grid(impl.forward(input).view({2, 2, 3}), {2, 3, 12, 12}, false);
            return F::grid_sample(batch[1], grid, F::GridSampleFuncOptions().align_corners(false));
          }),
      module_case(
          "CosineSimilarity", [] { return nn::CosineSimilarity(); },
          [] { return Batch{torch::randn({64, 16}), torch::randn({64, 16})}; },
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input, batch[1]);
          }),
      module_case(
          "PairwiseDistance", [] { return nn::PairwiseDistance(); },
          [] { return Batch{torch::randn({64, 16}), torch::randn({64, 16})}; },
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input, batch[1]);
          }),
  };
}

}  // namespace remat::testing
