// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "remat/core/error.h"
#include "remat/libtorch/checkpoint.h"
#include "remat/models/gpt.h"
#include "remat/models/lstm_lm.h"
#include "remat/models/resnet.h"
#include "remat/models/unet.h"
#include "tests/libtorch/testing.h"
#include "tests/testing/block_costs.h"
#include "tests/testing/counting_allocator.h"

// The zoo checkpointed by block: three training steps with an optimizer leave the same bits as the
// plain model, step by step.

namespace remat {
namespace {

using at::Tensor;
using models::BlockRunner;
using testing::same_bits;

int64_t parameter_count(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const Tensor& parameter : model.parameters()) {
    count += parameter.numel();
  }
  return count;
}

TEST(Models, PublishedParameterCounts) {
  using models::ResNetOptions;
  EXPECT_EQ(parameter_count(*models::ResNet(ResNetOptions::of_depth(18))), 11'689'512);
  EXPECT_EQ(parameter_count(*models::ResNet(ResNetOptions::of_depth(50))), 25'557'032);
  EXPECT_EQ(parameter_count(*models::ResNet(ResNetOptions::of_depth(152))), 60'192'808);
  EXPECT_EQ(parameter_count(*models::Gpt(models::GptOptions{})), 124'439'808);
  EXPECT_EQ(parameter_count(*models::LstmLm(models::LstmLmOptions{})), 19'780'400);
  EXPECT_EQ(parameter_count(*models::UNet(models::UNetOptions{})), 31'037'698);
  EXPECT_THROW(ResNetOptions::of_depth(20), Error);
}

// Loss, gradients, buffers and generator state of every step, and the parameters at the end.
template <typename Model, typename Optimizer, typename Options>
std::vector<Tensor> train(const std::function<Model()>& make, const Tensor& input,
                          const Tensor& target, const Options& optimizer_options,
                          const BlockRunner& run) {
  torch::manual_seed(11);
  Model model = make();
  Optimizer optimizer(model->parameters(), optimizer_options);
  std::vector<Tensor> values;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Tensor logits = model->forward(input, run);
    const Tensor loss = logits.dim() == 3
                            ? at::cross_entropy_loss(logits.flatten(0, 1), target.flatten())
                            : at::cross_entropy_loss(logits, target);
    loss.backward();
    values.push_back(loss.detach().clone());
    for (const Tensor& parameter : model->parameters()) values.push_back(parameter.grad().clone());
    for (const Tensor& buffer : model->buffers()) values.push_back(buffer.clone());
    values.push_back(testing::generator_state());
    optimizer.step();
  }
  for (const Tensor& parameter : model->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

const torch::optim::SGDOptions kSgd = torch::optim::SGDOptions(0.05).momentum(0.9);

template <typename Model, typename Optimizer, typename Options>
void expect_same_training(const std::function<Model()>& make, const Tensor& input,
                          const Tensor& target, const Options& options) {
  const auto train_with = [&](const BlockRunner& run) {
    return train<Model, Optimizer, Options>(make, input, target, options, run);
  };
  const auto plain = train_with(models::run_plain);
  const auto by_block = train_with([](const models::Block& block, std::vector<Tensor> inputs) {
    return checkpoint(block, std::move(inputs));
  });
  EXPECT_TRUE(same_bits(plain, by_block));
  const auto selective = train_with([](const models::Block& block, std::vector<Tensor> inputs) {
    return checkpoint(block, std::move(inputs), {.policy = keep_matmuls_and_convolutions()});
  });
  EXPECT_TRUE(same_bits(plain, selective));
}

TEST(Models, ResNet50TrainsTheSame) {
  torch::manual_seed(1);
  expect_same_training<models::ResNet, torch::optim::SGD>(
      [] {
        auto options = models::ResNetOptions::of_depth(50);
        options.classes = 10;
        return models::ResNet(options);
      },
      torch::randn({2, 3, 32, 32}), torch::randint(10, {2}), kSgd);
}

TEST(Models, TransformerWithDropoutTrainsTheSame) {
  torch::manual_seed(1);
  expect_same_training<models::Gpt, torch::optim::AdamW>(
      [] {
        return models::Gpt(models::GptOptions{
            .vocabulary = 50, .context = 16, .layers = 4, .heads = 2, .width = 32, .dropout = 0.1});
      },
      torch::randint(50, {3, 16}), torch::randint(50, {3, 16}), torch::optim::AdamWOptions(1e-3));
}

TEST(Models, LstmTrainsTheSame) {
  torch::manual_seed(1);
  expect_same_training<models::LstmLm, torch::optim::SGD>(
      [] {
        return models::LstmLm(
            models::LstmLmOptions{.vocabulary = 50, .layers = 3, .width = 24, .dropout = 0.5});
      },
      torch::randint(50, {3, 12}), torch::randint(50, {3, 12}), kSgd);
}

TEST(Models, UNetTrainsTheSame) {
  torch::manual_seed(1);
  expect_same_training<models::UNet, torch::optim::Adam>(
      [] { return models::UNet(models::UNetOptions{.levels = 3, .width = 8}); },
      torch::randn({2, 3, 32, 32}), torch::randint(2, {2, 32, 32}),
      torch::optim::AdamOptions(1e-3));
}

// The peak of a model checkpointed by block, in bytes, is what the inputs of the blocks and the
// largest block need, both seen in the plain model.
template <typename Model>
void expect_peak_of_the_rule(Model model, const Tensor& input, double most_of_plain) {
  const auto loss = [&](const BlockRunner& run) {
    return model->forward(input, run).square().mean();
  };
  const BlockRunner by_block = [](const models::Block& block, std::vector<Tensor> inputs) {
    return checkpoint(block, std::move(inputs));
  };
  testing::live_bytes();
  loss(models::run_plain).backward();
  const testing::StepCost plain = testing::measure_step(loss);
  const auto rule = static_cast<double>(testing::rule_peak_bytes(
      plain, std::vector<int64_t>(plain.blocks.size(), 1), /*last_too=*/true));
  loss(by_block).backward();
  testing::reset_peak();
  const int64_t before = testing::live_bytes();
  loss(by_block).backward();
  const auto measured = static_cast<double>(testing::peak_bytes() - before);
  EXPECT_NEAR(measured / rule, 1.0, 0.05);
  EXPECT_LT(measured / static_cast<double>(plain.peak_bytes), most_of_plain);
}

TEST(Models, PeakFallsAsTheRuleSays) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  auto narrow = models::ResNetOptions::of_depth(50);
  narrow.width = 16;  // so that activations, not gradients of parameters, are most of the peak
  expect_peak_of_the_rule(models::ResNet(narrow), torch::randn({8, 3, 64, 64}), 0.5);
  expect_peak_of_the_rule(
      models::Gpt(models::GptOptions{
          .vocabulary = 64, .context = 128, .layers = 8, .heads = 4, .width = 64}),
      torch::randint(64, {2, 128}), 0.25);
  expect_peak_of_the_rule(
      models::LstmLm(models::LstmLmOptions{.vocabulary = 64, .layers = 6, .width = 64}),
      torch::randint(64, {8, 32}), 0.4);
  expect_peak_of_the_rule(models::UNet(models::UNetOptions{.width = 16}),
                          torch::randn({2, 3, 128, 128}), 0.6);
}

}  // namespace
}  // namespace remat
