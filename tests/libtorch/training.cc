// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/training.h"

#include <gtest/gtest.h>

#include "remat/core/error.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "remat/libtorch/measure.h"

namespace remat::testing {
namespace {

// What a problem looks like now; can be put back.
class State {
 public:
  explicit State(const Problem& problem)
      : tensors_(problem.parameters), generator_(generator_state()) {
    tensors_.insert(tensors_.end(), problem.buffers.begin(), problem.buffers.end());
    copies_ = clones(tensors_);
    for (const at::Tensor& parameter : problem.parameters) {
      gradients_.push_back(parameter.grad());
      gradient_copies_.push_back(parameter.grad().defined() ? parameter.grad().clone()
                                                            : at::Tensor());
    }
  }
  void expect_unchanged() const {
    EXPECT_TRUE(same_bits(tensors_, copies_)) << "parameters or buffers";
    EXPECT_TRUE(same_bits(generator_state(), generator_)) << "generator";
    for (size_t i = 0; i < gradients_.size(); ++i) {
      EXPECT_TRUE(tensors_[i].grad().is_same(gradients_[i])) << "gradient " << i;
      EXPECT_TRUE(same_bits(gradients_[i], gradient_copies_[i])) << "gradient " << i;
    }
  }
  void put_back() const {
    const at::NoGradGuard no_gradients;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      at::Tensor(tensors_[i]).copy_(copies_[i]);
    }
    for (size_t i = 0; i < gradients_.size(); ++i) {
      at::Tensor(tensors_[i]).mutable_grad() = gradients_[i];
      if (gradients_[i].defined()) {
        at::Tensor(gradients_[i]).copy_(gradient_copies_[i]);
      }
    }
    at::Generator(at::detail::getDefaultCPUGenerator()).set_state(generator_);
  }

 private:
  std::vector<at::Tensor> tensors_, copies_, gradients_, gradient_copies_;
  at::Tensor generator_;
};

void append(std::vector<at::Tensor>& all, const std::vector<at::Tensor>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

Placement checked_placement(const Graph& graph, const Plan& plan) {
  const Schedule schedule = rewrite(graph, plan.order);
  const auto violation = verify(graph, schedule, kNoBudget);
  EXPECT_FALSE(violation) << violation->reason;
  return plan.placement ? *plan.placement : place(graph, schedule);
}

Execution make_execution(const Recording& recording, const Schedule& schedule,
                         const Placement& placement, std::shared_ptr<detail::Channel> channel) {
  return {recording, schedule, placement, make_arena(placement.arena_bytes),
          {.poison = true, .channel = std::move(channel)}};
}

}  // namespace

Problem module_problem(const torch::nn::Module& module, LossFunction loss,
                       std::vector<Batch> batches) {
  return {.parameters = module.parameters(),
          .buffers = module.buffers(),
          .loss = std::move(loss),
          .batches = std::move(batches)};
}

StepFunction plain_step(const Problem& problem) {
  return [loss_of = problem.loss](const Batch& batch) {
    const at::Tensor loss = loss_of(batch);
    loss.backward();
    return loss.detach();
  };
}

std::vector<at::Tensor> train(const Problem& problem, const StepFunction& step) {
  const State before(problem);
  torch::optim::SGD optimizer(problem.parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
  std::vector<at::Tensor> left;
  for (const Batch& batch : problem.batches) {
    if (!problem.accumulate) {
      optimizer.zero_grad();
    }
    left.push_back(step(batch).clone());
    for (const at::Tensor& parameter : problem.parameters) {
      left.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    }
    append(left, clones(problem.buffers));
    left.push_back(generator_state());
    optimizer.step();
    append(left, clones(problem.parameters));
  }
  before.put_back();
  return left;
}

PlannedStep::PlannedStep(const Recording& recording, const Plan& plan,
                         std::shared_ptr<detail::Channel> channel)
    : recording_(recording),
      placement_(checked_placement(recording.graph, plan)),
      execution_(make_execution(recording, rewrite(recording.graph, plan.order), placement_,
                                std::move(channel))) {
  const Schedule schedule = rewrite(recording.graph, plan.order);
  const Simulation predicted = simulate(recording.graph, schedule);
  predicted_peak_bytes_ = predicted.peak_bytes;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    if (schedule.steps[i].kind != StepKind::free) {
      predicted_bytes_.push_back(predicted.timeline[i].bytes);
    }
  }
  EXPECT_EQ(predicted_peak_bytes_, plan.peak_bytes);
}

at::Tensor PlannedStep::operator()(const Batch& batch) {
  StepResult result = execution_.run(batch);
  for (size_t i = 0; i < result.gradients.size(); ++i) {
    if (result.gradients[i].defined()) {
      at::Tensor(recording_.parameters[i]).mutable_grad() = result.gradients[i];
    }
  }
  EXPECT_EQ(execution_.counts().peak_bytes, predicted_peak_bytes_);
  EXPECT_EQ(execution_.measured_bytes(), predicted_bytes_);
  EXPECT_EQ(execution_.counts().outside_allocations, 0) << execution_.counts().outside_bytes;
  return result.loss;
}

int64_t PlannedStep::reserved_bytes() const {
  return recording_.graph.external_bytes() + placement_.arena_bytes;
}

void expect_trains_the_same(const Problem& problem, const std::vector<std::string>& strategies) {
  const std::vector<at::Tensor> plain = train(problem, plain_step(problem));
  const State before(problem);
  Recording recording = capture(
      problem.loss, problem.batches[0], problem.parameters,
      {.buffers = problem.buffers, .check_mutation = true, .check_reuse = true});
  before.expect_unchanged();
  recording.graph = measure(recording, problem.batches[0], {.seconds = 0}).graph;
  before.expect_unchanged();
  for (const std::string& strategy : strategies) {
    SCOPED_TRACE(strategy);
    const Plan made = plan(recording.graph, {.budget_bytes = floor(recording.graph).bytes,
                                             .strategy = strategy,
                                             .max_orders = 100});
    PlannedStep step(recording, made);
    EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  }
}

std::string capture_error(const Problem& problem) {
  const State before(problem);
  std::string message;
  try {
    capture(problem.loss, problem.batches[0], problem.parameters, {.buffers = problem.buffers});
    ADD_FAILURE() << "capture did not throw";
  } catch (const Error& error) {
    message = error.what();
  }
  before.expect_unchanged();
  return message;
}

}  // namespace remat::testing
