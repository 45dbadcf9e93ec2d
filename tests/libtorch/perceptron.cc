// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/perceptron.h"

#include <gtest/gtest.h>

#include "tests/libtorch/fake_device.h"

namespace remat::testing {

Perceptron::Perceptron(Optimizer kind) {
  torch::manual_seed(11);
  for (int64_t i = 0; i < kLayers; ++i) {
    layers->push_back(torch::nn::Linear(kWidth, kWidth));
  }
  namespace optim = torch::optim;
  if (kind == Optimizer::adamw) {
    optimizer = std::make_unique<optim::AdamW>(layers->parameters(), optim::AdamWOptions(1e-3));
  } else {
    optimizer = std::make_unique<optim::SGD>(layers->parameters(), optim::SGDOptions(1e-2).momentum(0.9));
  }
  torch::manual_seed(12);
}

Batch Perceptron::operator()(const Batch& batch) {
  ++calls;
  place = Place::forward;
  at::Tensor x = batch[0];
  for (const auto& layer : *layers) {
    x = torch::dropout(torch::gelu(layer->as<torch::nn::Linear>()->forward(x)), 0.1, true) * torch::sigmoid(x) + x;
    if (calls == throws_at) {
      throw std::runtime_error("the function's own");
    }
    if (on_the_way) {
      on_the_way(place);
      x.register_hook([this](const at::Tensor&) { on_the_way(Place::backward); });
    }
  }
  const at::Tensor loss = x.pow(2).mean();
  place = Place::backward;
  loss.backward();
  place = Place::update;
  if (on_the_way) {
    on_the_way(place);
  }
  optimizer->step();
  place = Place::after;
  if (on_the_way) {
    on_the_way(place);
  }
  optimizer->zero_grad();
  return {loss.detach()};
}

Batch batch_of(int64_t step, int64_t rows) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step) + 100);
  return {torch::randn({rows, Perceptron::kWidth}, generator)};
}

std::vector<at::Tensor> left_by(const Perceptron& training) {
  std::vector<at::Tensor> state = clones(training.layers->parameters());
  for (const at::Tensor& parameter : training.layers->parameters()) {
    const auto found = training.optimizer->state().find(parameter.unsafeGetTensorImpl());
    if (found == training.optimizer->state().end()) {
      continue;
    }
    if (const auto* adamw = dynamic_cast<const torch::optim::AdamWParamState*>(found->second.get())) {
      state.push_back(adamw->exp_avg().clone());
      state.push_back(adamw->exp_avg_sq().clone());
    } else if (const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(found->second.get())) {
      state.push_back(sgd->momentum_buffer().clone());
    }
  }
  state.push_back(generator_state());
  return state;
}

std::vector<at::Tensor> plain_losses(int64_t steps, std::vector<at::Tensor>& state) {
  Perceptron plain;
  std::vector<at::Tensor> losses;
  for (int64_t i = 0; i < steps; ++i) {
    losses.push_back(plain(batch_of(i))[0].clone());
  }
  state = left_by(plain);
  return losses;
}

int64_t plain_peak() {
  static const int64_t bytes = [] {
    Perceptron training;
    Step step([&](const Batch& batch) { return training(batch); },
              {.strategy = "keep_all", .plan_seconds = kPlanSeconds, .measure_seconds = 0});
    step(batch_of(0));
    step(batch_of(1));
    return step.report().keep_all_peak_bytes;
  }();
  return bytes;
}

int64_t tight_budget() { return plain_peak() * 2 / 5; }

Course train(int64_t steps, StepOptions options, const std::function<void(Step&, int64_t)>& before) {
  Course made;
  FakeDevice device;  // over that of the test, if there is one
  device.tick_by(1000);
  Perceptron training;
  options.notice = [&](const std::string& text) { made.notices.push_back(text); };
  Step step([&](const Batch& batch) { return training(batch); }, std::move(options));
  for (int64_t i = 0; i < steps; ++i) {
    if (before) {
      before(step, i);
    }
    made.losses.push_back(step(batch_of(i))[0].clone());
  }
  EXPECT_EQ(training.calls, steps);
  made.state = left_by(training);
  made.report = step.report();
  return made;
}

}  // namespace remat::testing
