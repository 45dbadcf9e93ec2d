// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/plan.h"
#include "remat/libtorch/capture.h"
#include "remat/libtorch/execute.h"
#include "tests/libtorch/testing.h"

// Training with plain LibTorch and with remat, side by side: everything that a step leaves must be
// the same, bit for bit.
namespace remat::testing {

// Something to train.
struct Problem {
  std::vector<at::Tensor> parameters = {};
  std::vector<at::Tensor> buffers = {};
  LossFunction loss = {};
  std::vector<Batch> batches = {};  // one for each step
  bool accumulate = false;          // into the gradients of the step before
};

// A module with a loss: everything the module has, trained.
Problem module_problem(const torch::nn::Module& module, LossFunction loss,
                       std::vector<Batch> batches);

// Returns the loss and leaves gradients, as loss.backward() does.
using StepFunction = std::function<at::Tensor(const Batch&)>;
StepFunction plain_step(const Problem& problem);

// Trains with SGD and momentum on the problem's batches and puts parameters, buffers, gradients and
// the generator back. Returns what every step left: loss, gradients, buffers, generator, parameters.
std::vector<at::Tensor> train(const Problem& problem, const StepFunction& step);

// A plan of a recorded step as a step function, checked: verified, the counted peak is the
// predicted one, nothing was allocated outside of the arena, nothing is read after it was freed.
class PlannedStep {
 public:
  PlannedStep(const Recording& recording, const Plan& plan,
              std::shared_ptr<detail::Channel> channel = nullptr);
  const StepCounts& counts() const { return execution_.counts(); }
  at::Tensor operator()(const Batch& batch);
  int64_t reserved_bytes() const;  // externals and the arena

 private:
  const Recording& recording_;
  Placement placement_;
  int64_t predicted_peak_bytes_ = 0;
  std::vector<int64_t> predicted_bytes_;  // while each op of the schedule runs
  Execution execution_;
};

// Captures the problem (with every debug mode on), plans with each strategy, at the least memory
// where the strategy listens to a budget, and trains: the same bits as plain LibTorch.
void expect_trains_the_same(const Problem& problem,
                            const std::vector<std::string>& strategies = {"keep_all", "search",
                                                                          "recompute_all"});

// The message with which capturing the problem fails; a test failure if it does not. The problem
// must be as it was before.
std::string capture_error(const Problem& problem);

}  // namespace remat::testing
