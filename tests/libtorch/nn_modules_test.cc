// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/nn_modules.h"

#include <gtest/gtest.h>

#include <iterator>

// All of torch::nn works inside a step: the same bits as plain LibTorch.

namespace remat {
namespace testing {

using at::Tensor;

Program train_module(std::shared_ptr<torch::nn::Module> module, Forward forward,
                     std::function<Batch()> make_batch) {
  Program program = {.modules = {module}};
  for (int i = 0; i < 3; ++i) {
    program.batches.push_back(make_batch());
  }
  const Tensor& input = program.batches[0][0];
  Tensor scale;
  if (input.is_floating_point()) {
    scale = (1 + 0.1 * torch::randn(input.sizes())).requires_grad_();
    program.kept->push_back(scale);
  }
  std::vector<Tensor> parameters = module->parameters();
  if (scale.defined()) {
    parameters.push_back(scale);
  }
  const auto optimizer = std::make_shared<torch::optim::SGD>(parameters, 0.01);
  program.optimizers = {optimizer};
  program.step = [=, forward = std::move(forward)](const Batch& batch) {
    const Tensor output = forward(scale.defined() ? batch[0] * scale : batch[0], batch);
    const Tensor loss = output.square().sum();
    loss.backward();
    Batch results = {loss, output.detach()};
    for (const Tensor& parameter : parameters) {
      results.push_back(parameter.grad());
    }
    optimizer->step();
    optimizer->zero_grad();
    return results;
  };
  return program;
}

}  // namespace testing

namespace {

using testing::ProgramCase;

std::vector<ProgramCase> all_modules() {
  std::vector<ProgramCase> all;
  for (std::vector<ProgramCase> theme : {testing::activation_modules(), testing::layer_modules(),
                                         testing::sequence_modules(), testing::loss_modules()}) {
    std::move(theme.begin(), theme.end(), std::back_inserter(all));
  }
  return all;
}

class NnModules : public ::testing::TestWithParam<ProgramCase> {};

TEST_P(NnModules, TrainTheSame) { testing::expect_same_as_plain_loop(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, NnModules, ::testing::ValuesIn(all_modules()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace remat
