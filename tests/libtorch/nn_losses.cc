// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/nn_modules.h"

namespace remat::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;

constexpr int64_t kSamples = 48, kChoices = 8;

using Target = std::function<Tensor()>;

Tensor any_number() { return torch::randn({kSamples, kChoices}); }
Tensor probability() { return torch::rand({kSamples, kChoices}); }
Tensor distribution() { return torch::rand({kSamples, kChoices}).softmax(1); }
Tensor one_or_minus_one() { return torch::randint(2, {kSamples, kChoices}).mul(2).sub(1); }
Tensor sign_of_each_row() { return torch::randint(2, {kSamples}).mul(2).sub(1); }
Tensor class_of_each_row() { return torch::randint(kChoices, {kSamples}, at::kLong); }
Tensor classes_of_each_row() {
  const Tensor labels = torch::randint(kChoices, {kSamples, kChoices}, at::kLong);
  labels.select(1, 3).fill_(-1);  // nothing counts from here on
  return labels;
}

// A loss of rows of numbers against a target.
template <typename Make>
ProgramCase loss(const std::string& name, Make make, Target target) {
  return module_case(
      name, make, [=] { return Batch{any_number(), target()}; },
      [](auto& impl, const Tensor& input, const Batch& batch) {
        return impl.forward(input, batch[1]);
      });
}

// The same, where numbers must be probabilities or their logarithms.
template <typename Make>
ProgramCase loss_of_probabilities(const std::string& name, Make make, Target target) {
  return module_case(
      name, make, [=] { return Batch{any_number(), target()}; },
      [](auto& impl, const Tensor& input, const Batch& batch) {
        return impl.forward(input.sigmoid(), batch[1]);
      });
}

template <typename Make>
ProgramCase loss_of_logarithms(const std::string& name, Make make, Target target) {
  return module_case(
      name, make, [=] { return Batch{any_number(), target()}; },
      [](auto& impl, const Tensor& input, const Batch& batch) {
        return impl.forward(input.log_softmax(1), batch[1]);
      });
}

// A loss of two inputs and a target.
template <typename Make>
ProgramCase loss_of_two(const std::string& name, Make make, const Sizes& sizes, Target target) {
  return module_case(
      name, make, [=] { return Batch{torch::randn(sizes), torch::randn(sizes), target()}; },
      [](auto& impl, const Tensor& input, const Batch& batch) {
        return impl.forward(input, batch[1], batch[2]);
      });
}

}  // namespace

std::vector<ProgramCase> loss_modules() {
  const Sizes rows = {kSamples, kChoices};
  return {
      loss(
          "L1Loss", [] { return nn::L1Loss(); }, any_number),
      loss(
          "MSELoss", [] { return nn::MSELoss(); }, any_number),
      loss(
          "MSELossOfEach", [] { return nn::MSELoss(nn::MSELossOptions(torch::kNone)); },
          any_number),
      loss_of_logarithms(
          "KLDivLoss", [] { return nn::KLDivLoss(nn::KLDivLossOptions(torch::kBatchMean)); },
          distribution),
      loss_of_probabilities(
          "BCELoss", [] { return nn::BCELoss(); }, probability),
      loss(
          "BCEWithLogitsLoss",
          [] {
            return nn::BCEWithLogitsLoss(
                nn::BCEWithLogitsLossOptions().pos_weight(torch::full({kChoices}, 2.0)));
          },
          probability),
      loss(
          "HingeEmbeddingLoss", [] { return nn::HingeEmbeddingLoss(); }, one_or_minus_one),
      loss(
          "MultiMarginLoss", [] { return nn::MultiMarginLoss(); }, class_of_each_row),
      loss(
          "MultiLabelMarginLoss", [] { return nn::MultiLabelMarginLoss(); }, classes_of_each_row),
      loss(
          "SoftMarginLoss", [] { return nn::SoftMarginLoss(); }, one_or_minus_one),
      loss(
          "MultiLabelSoftMarginLoss", [] { return nn::MultiLabelSoftMarginLoss(); },
          [] { return torch::randint(2, {kSamples, kChoices}).to(at::kFloat); }),
      loss(
          "SmoothL1Loss", [] { return nn::SmoothL1Loss(); }, any_number),
      loss(
          "HuberLoss", [] { return nn::HuberLoss(nn::HuberLossOptions().delta(0.5)); }, any_number),
      loss(
          "PoissonNLLLoss",
          [] { return nn::PoissonNLLLoss(nn::PoissonNLLLossOptions().full(true)); },
          [] { return torch::randint(5, {kSamples, kChoices}).to(at::kFloat); }),
      loss(
          "CrossEntropyLoss", [] { return nn::CrossEntropyLoss(); }, class_of_each_row),
      loss(
          "CrossEntropyLossSmoothed",
          [] {
            return nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.1).weight(
                torch::linspace(0.5, 2, kChoices)));
          },
          class_of_each_row),
      loss(
          "CrossEntropyLossOfProbabilities", [] { return nn::CrossEntropyLoss(); }, distribution),
      loss_of_logarithms(
          "NLLLoss", [] { return nn::NLLLoss(nn::NLLLossOptions().ignore_index(1)); },
          class_of_each_row),
      loss_of_two(
          "CosineEmbeddingLoss", [] { return nn::CosineEmbeddingLoss(); }, rows, sign_of_each_row),
      loss_of_two(
          "MarginRankingLoss", [] { return nn::MarginRankingLoss(); }, {kSamples}, sign_of_each_row),
      loss_of_two(
          "TripletMarginLoss", [] { return nn::TripletMarginLoss(); }, rows, any_number),
      loss_of_two(
          "TripletMarginWithDistanceLoss", [] { return nn::TripletMarginWithDistanceLoss(); }, rows,
          any_number),
      module_case(
          "CTCLoss", [] { return nn::CTCLoss(); },
          [] {
            return Batch{torch::randn({24, 3, kChoices}),
                         torch::randint(1, kChoices, {3, 3}, at::kLong),
                         torch::tensor({24, 20, 16}), torch::tensor({3, 2, 1})};
          },
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input.log_softmax(2), batch[1], batch[2], batch[3]);
          }),
      // Rows are chosen by the cluster of their target, as many of each in every batch.
      module_case(
          "AdaptiveLogSoftmaxWithLoss",
          [] {
            return nn::AdaptiveLogSoftmaxWithLoss(
                nn::AdaptiveLogSoftmaxWithLossOptions(8, 10, {3, 6}).div_value(2.0));
          },
          [] {
            return Batch{torch::randn({40, 8}),
                         torch::tensor({1, 4, 8, 0, 5}).repeat({8}).index({torch::randperm(40)})};
          },
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input, batch[1]).output;
          }),
  };
}

}  // namespace remat::testing
