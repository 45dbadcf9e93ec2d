// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "remat/libtorch/checkpoint.h"
#include "remat/models/zoo.h"
#include "tests/libtorch/testing.h"

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

}  // namespace
}  // namespace remat
