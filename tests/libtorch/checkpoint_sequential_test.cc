// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>

#include "remat/core/error.h"
#include "remat/libtorch/sequential.h"
#include "tests/libtorch/testing.h"

namespace remat {
namespace {

using at::Tensor;
using testing::same_bits;

torch::nn::Sequential chain(int64_t layers) {
  torch::manual_seed(4);
  torch::nn::Sequential model;
  for (int64_t i = 0; i < layers; ++i) {
    model->push_back(torch::nn::Linear(6, 6));
    model->push_back(torch::nn::BatchNorm1d(6));
    model->push_back(torch::nn::Dropout(0.2));
  }
  return model;
}

// Input gradient, parameter gradients, buffers and generator state after one step.
template <typename Forward>
std::vector<Tensor> step(torch::nn::Sequential model, Forward forward) {
  torch::manual_seed(5);
  Tensor x = torch::randn({7, 6}).requires_grad_();
  forward(model, x).square().sum().backward();
  std::vector<Tensor> values = {x.grad(), testing::generator_state()};
  for (const Tensor& g : testing::take_gradients(model->parameters())) values.push_back(g);
  for (const Tensor& b : model->buffers()) values.push_back(b.clone());
  return values;
}

TEST(CheckpointSequential, EveryNumberOfSegmentsIsBitIdentical) {
  const auto plain = step(chain(3), [](auto& m, const Tensor& x) { return m->forward(x); });
  for (const bool balanced : {false, true}) {
    for (const int64_t segments : {1, 2, 4, 9, 50}) {
      const auto ours = step(chain(3), [&](auto& m, const Tensor& x) {
        return checkpoint_sequential(m, segments, x, {.balanced = balanced});
      });
      EXPECT_TRUE(same_bits(plain, ours)) << segments << " segments, balanced " << balanced;
    }
  }
}

TEST(CheckpointSequential, LastSegmentIsNotRunAgain) {
  std::vector<std::shared_ptr<int>> calls;
  std::vector<std::function<Tensor(const Tensor&)>> layers;
  for (int i = 0; i < 6; ++i) {
    calls.push_back(std::make_shared<int>(0));
    layers.push_back([count = calls.back()](const Tensor& x) {
      ++*count;
      return x.exp().tanh();
    });
  }
  Tensor x = torch::zeros({3}).requires_grad_();
  checkpoint_sequential(layers, 3, x).sum().backward();
  std::vector<int> counts;
  for (const auto& count : calls) counts.push_back(*count);
  EXPECT_EQ(counts, (std::vector<int>{2, 2, 2, 2, 1, 1}));
}

TEST(CheckpointSequential, SegmentSizesCanBeGiven) {
  auto model = chain(2);
  Tensor x = torch::randn({4, 6});
  EXPECT_NO_THROW(checkpoint_sequential(model, 2, x, {.segment_sizes = {1, 5}}));
  EXPECT_THROW(checkpoint_sequential(model, 2, x, {.segment_sizes = {1, 4}}), Error);
  EXPECT_THROW(checkpoint_sequential(model, 0, x), Error);
  EXPECT_THROW(checkpoint_sequential(std::vector<Layer>{}, 1, x), Error);
}

TEST(CheckpointSequential, MeasuringLeavesEverythingAlone) {
  auto model = chain(2);
  torch::manual_seed(6);
  const Tensor x = torch::randn({5, 6}).requires_grad_();
  const auto buffers = testing::clones(model->buffers());
  const Tensor generator = testing::generator_state();
  const auto costs = measure_layers(detail::make_layers(model), x);
  ASSERT_EQ(costs.size(), 6u);
  EXPECT_TRUE(same_bits(buffers, testing::clones(model->buffers())));
  EXPECT_TRUE(same_bits(generator, testing::generator_state()));
  EXPECT_EQ(costs[0].output_bytes, 5 * 6 * 4);
  EXPECT_EQ(costs[0].saved_bytes, 0);          // a linear layer saves its input, which is kept
  EXPECT_EQ(costs[1].saved_bytes, 2 * 6 * 4);  // BatchNorm: mean and deviation per channel
  EXPECT_GT(costs[0].time_ns, 0);
}

// Six layers that save 60, 10, 10, 10, 10, 20 in two segments: equal counts need 80 + 1 kept, the
// best cut is after the first layer: 60 + 1.
TEST(BalanceSegments, EvensOutBytes) {
  std::vector<LayerCost> costs;
  for (const int64_t bytes : {60, 10, 10, 10, 10, 20}) {
    costs.push_back({.time_ns = 1, .saved_bytes = bytes, .output_bytes = 1});
  }
  EXPECT_EQ(balance_segments(costs, 2), (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(balance_segments(costs, 6), (std::vector<int64_t>(6, 1)));
  EXPECT_EQ(balance_segments(costs, 1), (std::vector<int64_t>{6}));
}

// All cuts need the same bytes; the last segment is not run again, so it gets the slow layer.
TEST(BalanceSegments, RepeatsTheLeastWorkAmongEquals) {
  const std::vector<LayerCost> costs = {{1, 5, 1}, {1, 0, 1}, {100, 0, 1}, {1, 5, 1}};
  EXPECT_EQ(balance_segments(costs, 2), (std::vector<int64_t>{1, 3}));
}

// Cutting where the tensor between two layers is small matters as much as even segments.
TEST(BalanceSegments, CutsWhereLittleIsKept) {
  const std::vector<LayerCost> costs = {{1, 10, 50}, {1, 10, 50}, {1, 10, 1}, {1, 10, 50}};
  EXPECT_EQ(balance_segments(costs, 2), (std::vector<int64_t>{3, 1}));
}

}  // namespace
}  // namespace remat
