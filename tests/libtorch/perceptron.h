// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/libtorch/step.h"
#include "tests/libtorch/testing.h"

// A training whose plain step needs several times what its parameters do, in milliseconds.
namespace remat::testing {

// Keeps some 40 MiB for backward, beside 1.5 MiB of parameters and 3 MiB of AdamW's state (SGD: 1.5 MiB).
struct Perceptron {
  static constexpr int64_t kLayers = 6;
  static constexpr int64_t kWidth = 256;
  static constexpr int64_t kRows = 1024;
  enum class Place : uint8_t { before, forward, backward, update, after };

  enum class Optimizer : uint8_t { adamw, momentum };  // AdamW counts its steps on the host, SGD does not

  explicit Perceptron(Optimizer kind = Optimizer::adamw);
  // A whole training step.
  Batch operator()(const Batch& batch);

  torch::nn::ModuleList layers;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  int64_t calls = 0;
  int64_t throws_at = -1;         // the call that throws, after its first layer
  Place place = Place::before;    // how far the last call came
  // Called after every layer, in forward and in backward, before the update and after it.
  std::function<void(Place)> on_the_way = {};
};

Batch batch_of(int64_t step, int64_t rows = Perceptron::kRows);

// Parameters, optimizer state and the generator.
std::vector<at::Tensor> left_by(const Perceptron& training);

std::vector<at::Tensor> plain_losses(int64_t steps, std::vector<at::Tensor>& state);

// Of a plain step, by the graph.
int64_t plain_peak();
// Well above the floor, and well below what a plain step needs.
int64_t tight_budget();

// Enough for a plan of this training, even under sanitizers.
inline constexpr double kPlanSeconds = 0.05;

struct Course {
  std::vector<at::Tensor> losses;
  std::vector<at::Tensor> state;
  std::vector<std::string> notices;
  StepReport report;
};
// On a clock of its own (FakeDevice::tick_by), so that no step is slow and no disk either.
Course train(int64_t steps, StepOptions options, const std::function<void(Step&, int64_t)>& before = {});

}  // namespace remat::testing
