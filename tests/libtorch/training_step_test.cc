// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/training_step.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "remat/core/error.h"
#include "remat/models/gpt.h"
#include "remat/models/resnet.h"
#include "tests/libtorch/testing.h"

namespace remat {
namespace {

using testing::same_bits;

struct Task {
  std::shared_ptr<torch::nn::Module> module;
  LossFunction loss;
  std::function<Batch()> batch;
};

Task tiny_resnet() {
  torch::manual_seed(7);
  auto options = models::ResNetOptions::of_depth(18);
  options.width = 8;
  options.classes = 10;
  models::ResNet model(options);
  return {model.ptr(),
          [model](const Batch& batch) mutable {
            return torch::nn::functional::cross_entropy(model->forward(batch[0]), batch[1]);
          },
          [] {
            return Batch{torch::randn({8, 3, 32, 32}),
                         torch::randint(10, {8}, at::TensorOptions(at::kLong))};
          }};
}

Task tiny_gpt() {
  torch::manual_seed(8);
  models::Gpt model(models::GptOptions{
      .vocabulary = 101, .context = 16, .layers = 2, .heads = 2, .width = 32});
  return {model.ptr(),
          [model](const Batch& batch) mutable {
            return torch::nn::functional::cross_entropy(
                model->forward(batch[0]).flatten(0, 1), batch[1].flatten());
          },
          [] {
            return Batch{torch::randint(101, {4, 16}, at::TensorOptions(at::kLong)),
                         torch::randint(101, {4, 16}, at::TensorOptions(at::kLong))};
          }};
}

// Three steps, plain and through TrainingStep, from the same start; everything must agree.
void expect_same(const std::function<Task()>& make, double share) {
  Task plain = make();
  Task ours = make();
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) {
    batches.push_back(plain.batch());
  }
  TrainingStep probe(make().loss, plain.module->parameters());
  torch::optim::SGD plain_optimizer(plain.module->parameters(), 0.1);
  torch::optim::SGD our_optimizer(ours.module->parameters(), 0.1);
  const auto parameters = ours.module->parameters();
  int64_t whole = 0;
  {
    TrainingStep keep_all(ours.loss, parameters, ours.module->buffers(),
                          {.measure_seconds = 0.1, .execute = {.poison = true}});
    Task copy = make();
    TrainingStep fresh(copy.loss, copy.module->parameters(), copy.module->buffers(),
                       {.measure_seconds = 0.1});
    fresh(batches[0]);
    whole = fresh.report().keep_all_peak_bytes;
  }
  TrainingStep step(ours.loss, parameters, ours.module->buffers(),
                    {.budget_bytes = static_cast<int64_t>(static_cast<double>(whole) * share),
                     .plan_seconds = 0.3,
                     .measure_seconds = 0.1,
                     .execute = {.poison = true}});
  for (const Batch& batch : batches) {
    torch::manual_seed(3);
    plain_optimizer.zero_grad();
    const at::Tensor plain_loss = plain.loss(batch);
    plain_loss.backward();
    const at::Tensor plain_state = testing::generator_state();
    plain_optimizer.step();

    torch::manual_seed(3);
    our_optimizer.zero_grad();
    const at::Tensor loss = step(batch);
    EXPECT_TRUE(same_bits(testing::generator_state(), plain_state));
    EXPECT_TRUE(same_bits(loss, plain_loss.detach())) << loss << plain_loss;
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(same_bits(parameters[i].grad(), plain.module->parameters()[i].grad())) << i;
    }
    our_optimizer.step();
    EXPECT_TRUE(same_bits(ours.module->buffers(), plain.module->buffers()));
    EXPECT_TRUE(same_bits(ours.module->parameters(), plain.module->parameters()));
    const StepReport report = step.report();
    EXPECT_EQ(report.measured_peak_bytes, report.predicted_peak_bytes);
    EXPECT_EQ(report.counts.outside_allocations, 0) << report.counts.outside_bytes;
    EXPECT_LE(report.peak_bytes, static_cast<int64_t>(static_cast<double>(whole) * share));
    std::printf("%s eager %ld keep_all %ld peak %ld arena %ld ext %ld\n", report.strategy.c_str(),
                report.eager_peak_bytes, report.keep_all_peak_bytes, report.peak_bytes,
                report.arena_bytes, report.external_bytes);
  }
}

TEST(TrainingStep, ResNet) { expect_same(tiny_resnet, 1.0); }
TEST(TrainingStep, ResNetHalf) { expect_same(tiny_resnet, 0.7); }
TEST(TrainingStep, Gpt) { expect_same(tiny_gpt, 1.0); }
TEST(TrainingStep, GptHalf) { expect_same(tiny_gpt, 0.6); }

}  // namespace
}  // namespace remat
