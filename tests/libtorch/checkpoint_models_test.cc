// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "remat/libtorch/checkpoint.h"
#include "remat/models/gpt.h"
#include "remat/models/lstm_lm.h"
#include "remat/models/resnet.h"
#include "remat/models/unet.h"
#include "remat/models/zoo.h"
#include "tests/libtorch/testing.h"
#include "tests/libtorch/tiny_zoo.h"
#include "tests/testing/block_costs.h"
#include "tests/testing/counting_allocator.h"

// The zoo checkpointed by block: three training steps with an optimizer leave the same bits as the
// plain model, step by step.

namespace remat {
namespace {

using at::Tensor;
using models::BlockRunner;
using testing::same_bits;

class CheckpointModels : public ::testing::TestWithParam<std::string> {};

// Loss, gradients, buffers and generator state of every step, and the parameters at the end.
std::vector<Tensor> train(const models::ZooEntry& entry, const BlockRunner& run) {
  torch::manual_seed(11);
  const models::TrainingTask task = entry.make(testing::tiny_size(entry));
  const std::vector<Tensor> parameters = task.module->parameters();
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(1e-3));
  std::vector<Tensor> values;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Tensor loss = task.loss_by_block(task.make_batch(step), run);
    loss.backward();
    values.push_back(loss.detach().clone());
    for (const Tensor& parameter : parameters) values.push_back(parameter.grad().clone());
    for (const Tensor& buffer : task.module->buffers()) values.push_back(buffer.clone());
    values.push_back(testing::generator_state());
    optimizer.step();
  }
  for (const Tensor& parameter : parameters) values.push_back(parameter.detach().clone());
  return values;
}

TEST_P(CheckpointModels, TrainsTheSame) {
  const models::ZooEntry& entry = models::find_model(GetParam());
  const auto plain = train(entry, models::run_plain);
  const auto by_block = train(entry, [](const models::Block& block, std::vector<Tensor> inputs) {
    return checkpoint(block, std::move(inputs));
  });
  EXPECT_TRUE(same_bits(plain, by_block));
  const auto selective = train(entry, [](const models::Block& block, std::vector<Tensor> inputs) {
    return checkpoint(block, std::move(inputs), {.policy = keep_matmuls_and_convolutions()});
  });
  EXPECT_TRUE(same_bits(plain, selective));
}

INSTANTIATE_TEST_SUITE_P(Zoo, CheckpointModels, ::testing::ValuesIn(testing::zoo_names()),
                         [](const auto& instance) { return instance.param; });

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
