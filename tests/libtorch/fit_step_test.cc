// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/fit_step.h"

#include <gtest/gtest.h>

#include <memory>

#include "remat/core/error.h"
#include "tests/libtorch/testing.h"

namespace remat::testing {
namespace {

namespace nn = torch::nn;

constexpr int64_t kWidth = 64;

// A chain of linear layers and GELUs, trained on its own input.
struct Model {
  Model() {
    for (int i = 0; i < 6; ++i) {
      layers->extend(*nn::Sequential(nn::Linear(kWidth, kWidth), nn::GELU()));
    }
    ++alive;
  }
  ~Model() { --alive; }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  at::Tensor loss(const at::Tensor& x) { return (layers->forward(x) - x).square().mean(); }

  nn::Sequential layers;
  static inline int alive = 0;
};

SizedStep step_of(int64_t size, void (*drop_gradients)(Model&)) {
  auto model = std::make_shared<Model>();
  return {[model, drop_gradients](const Batch& batch) {
            drop_gradients(*model);
            const at::Tensor loss = model->loss(batch[0]);
            loss.backward();
            return Batch{loss.detach()};
          },
          {torch::ones({32 * size, kWidth})}};
}

SizedStep forward_and_backward(int64_t size) {
  return step_of(size, [](Model& model) {
    for (at::Tensor& parameter : model.layers->parameters()) parameter.mutable_grad().reset();
  });
}

// Gradients of the step before are there when this one begins, but for the first: it detaches them.
SizedStep with_old_gradients(int64_t size) {
  return step_of(size, [](Model& model) { model.layers->zero_grad(); });
}

SizedStep with_update(int64_t size) {
  auto model = std::make_shared<Model>();
  auto optimizer = std::make_shared<torch::optim::AdamW>(model->layers->parameters());
  return {[model, optimizer](const Batch& batch) {
            const at::Tensor loss = model->loss(batch[0]);
            loss.backward();
            optimizer->step();
            optimizer->zero_grad();
            return Batch{loss.detach()};
          },
          {torch::ones({32 * size, kWidth})}};
}

FitOptions options_of(int64_t budget_bytes) {
  return {.budget_bytes = budget_bytes, .plan_seconds = 0.2};
}

void check(const Fit& fit, int64_t budget_bytes) {
  EXPECT_LE(fit.planned.reserved_bytes, budget_bytes);
  EXPECT_EQ(fit.planned.measured_peak_bytes, fit.planned.predicted_peak_bytes);
  EXPECT_LE(fit.plain.measured_peak_bytes, budget_bytes);
  EXPECT_EQ(fit.next_size, fit.planned.size + 1);
  EXPECT_GT(fit.planned.step_ns, 0);
  EXPECT_GT(fit.plain.step_ns, 0);
}

TEST(FitStep, FindsALargerBatchThanThePlainStepCanTake) {
  const int64_t budget_bytes = 2 * MiB;
  const Fit found = fit(forward_and_backward, options_of(budget_bytes), {.plan_seconds = 0.2});
  check(found, budget_bytes);
  EXPECT_GE(found.planned.size, found.plain.size * 3 / 2);

  // A little more really does not fit (right at the edge a search may or may not find a plan), and one
  // more does not fit the plain step.
  const auto run = [&](int64_t size, int64_t budget) {
    const SizedStep made = forward_and_backward(size);
    Step step(made.function, {.budget_bytes = budget, .plan_seconds = 0.2});
    step(made.batch);
    return step.report();
  };
  EXPECT_THROW(run(found.planned.size * 21 / 20 + 1, budget_bytes), Infeasible) << found.next_reason;
  EXPECT_GT(run(found.plain.size + 1, kNoBudget).eager_peak_bytes, budget_bytes);
}

// The first call takes a course of its own, which needs less: what counts is the one that stays.
TEST(FitStep, TheCourseOfTheStartDoesNotCount) {
  const int64_t budget_bytes = 2 * MiB;
  const Fit found = fit(with_old_gradients, options_of(budget_bytes), {.plan_seconds = 0.2});
  check(found, budget_bytes);
  EXPECT_LE(found.plain_runs, 5);
  const SizedStep made = with_old_gradients(found.planned.size);
  Step step(made.function, {.budget_bytes = budget_bytes, .plan_seconds = 0.2});
  for (int i = 0; i < 4; ++i) step(made.batch);
  EXPECT_GE(step.report().planned_steps, 2);
  EXPECT_LE(step.report().peak_bytes, budget_bytes);
}

TEST(FitStep, TheUpdateMayBeInside) {
  const int64_t budget_bytes = 2 * MiB;
  const Fit found = fit(with_update, options_of(budget_bytes), {.plan_seconds = 0.2});
  check(found, budget_bytes);
  EXPECT_GE(found.planned.size, found.plain.size);
}

TEST(FitStep, NothingOfOneSizeIsAliveWhenTheNextIsMade) {
  int made = 0;
  const MakeStep make = [&](int64_t size) {
    EXPECT_EQ(Model::alive, 0) << size;
    ++made;
    return forward_and_backward(size);
  };
  fit(make, options_of(MiB), {.plan_seconds = 0.2});
  EXPECT_EQ(Model::alive, 0);
  EXPECT_GE(made, 4);
}

TEST(FitStep, WhereNothingFitsTheFloorIsSaid) {
  const Fit found = fit(forward_and_backward, options_of(64 * KiB), {.plan_seconds = 0.2});
  EXPECT_EQ(found.planned.size, 0);
  EXPECT_GT(found.floor_bytes, 64 * KiB);
  const SizedStep made = forward_and_backward(1);
  Step step(made.function, {.budget_bytes = 64 * KiB, .plan_seconds = 0.2});
  try {
    step(made.batch);
    FAIL();
  } catch (const Infeasible& error) {
    const auto real = static_cast<double>(error.floor_bytes);
    EXPECT_NEAR(static_cast<double>(found.floor_bytes), real, 0.02 * real);
  }
}

TEST(FitStep, WhatTheStepThrowsComesOut) {
  const MakeStep make = [](int64_t size) -> SizedStep {
    SizedStep made = forward_and_backward(size);
    made.function = [](const Batch&) -> Batch { throw std::out_of_range("no more data"); };
    return made;
  };
  EXPECT_THROW(fit(make, options_of(MiB)), std::out_of_range);
}

// Sequences that are unrolled call more ops the longer they are.
TEST(FitStep, RefusesAProgramThatIsAnotherAtEverySize) {
  const MakeStep make = [](int64_t size) -> SizedStep {
    auto weight = std::make_shared<at::Tensor>(torch::eye(8).requires_grad_());
    return {[weight, size](const Batch& batch) {
              weight->mutable_grad().reset();
              at::Tensor x = batch[0];
              for (int64_t i = 0; i < size; ++i) x = x.matmul(*weight).tanh();
              const at::Tensor loss = x.sum();
              loss.backward();
              return Batch{loss.detach()};
            },
            {torch::ones({16, 8})}};
  };
  FitOptions options = options_of(MiB);
  options.largest = 8;
  try {
    fit(make, options, {.plan_seconds = 0.2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[fit] the program is another one at sizes up to "),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace remat::testing
