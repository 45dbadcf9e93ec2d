// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/training_step.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <thread>

#include "remat/core/error.h"
#include "remat/report/save_html.h"
#include "tests/libtorch/tiny_zoo.h"
#include "tests/libtorch/training.h"

namespace remat {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using testing::Problem;
using testing::same_bits;
using testing::train;

TrainingStepOptions quick(int64_t budget_bytes = kNoBudget) {
  return {.budget_bytes = budget_bytes,
          .plan_seconds = 0.2,
          .measure_seconds = 0,
          .execute = {.poison = true}};
}

TrainingStep make_step(const Problem& problem, TrainingStepOptions options = quick()) {
  return TrainingStep(problem.loss, problem.parameters, problem.buffers, std::move(options));
}

// Without dropout unless asked for: other threads may not disturb it.
Problem perceptron(uint64_t seed = 5, double dropout = 0) {
  torch::manual_seed(seed);
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16), torch::nn::Tanh(),
                            torch::nn::Dropout(dropout), torch::nn::Linear(16, 16),
                            torch::nn::Tanh(), torch::nn::Linear(16, 3));
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) {
    batches.push_back({torch::randn({8, 6}), torch::randint(3, {8}, at::kLong)});
  }
  return testing::module_problem(
      *net,
      [net](const Batch& batch) mutable {
        return F::cross_entropy(net->forward(batch[0]), batch[1]);
      },
      std::move(batches));
}

class TrainingStepZoo : public ::testing::TestWithParam<std::string> {};

TEST_P(TrainingStepZoo, TrainsTheSameInsideItsBudget) {
  const Problem problem = testing::zoo_problem(GetParam());
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStep whole = make_step(problem);
  EXPECT_TRUE(same_bits(train(problem, std::ref(whole)), plain));
  const StepReport first = whole.report();
  EXPECT_GT(first.keep_all_peak_bytes, first.floor_bytes);

  const int64_t budget = (first.keep_all_peak_bytes + first.floor_bytes) / 2;
  TrainingStep step = make_step(problem, quick(budget));
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  const StepReport report = step.report();
  EXPECT_EQ(report.budget_bytes, budget);
  EXPECT_EQ(report.measured_peak_bytes, report.predicted_peak_bytes);
  EXPECT_EQ(report.counts.outside_allocations, 0);
  EXPECT_LE(report.predicted_peak_bytes, report.peak_bytes);
  EXPECT_LE(report.peak_bytes, budget);
  EXPECT_EQ(report.peak_bytes, report.external_bytes + report.arena_bytes);
  EXPECT_EQ(report.timeline.size(), step.schedule().steps.size());

  // Just below the floor a longer search may still find something.
  TrainingStep starved = make_step(problem, quick(first.floor_bytes / 2));
  try {
    starved(problem.batches[0]);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("[step] no plan fits the budget of ")) << message;
    EXPECT_NE(message.find("the least known is "), std::string::npos) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(Two, TrainingStepZoo, ::testing::Values("resnet18", "gpt2_small"),
                         [](const auto& instance) { return instance.param; });

// The page's curves: what was counted at every op is what was predicted there.
TEST(TrainingStep, ItsPageShowsWhatWasMeasured) {
  const Problem problem = perceptron();
  TrainingStep step = make_step(problem);
  EXPECT_THROW(report_step(step), Error) << "nothing has been planned yet";
  for (const Batch& batch : problem.batches) step(batch);
  const StepReport report = step.report();
  std::vector<int64_t> predicted;
  for (size_t i = 0; i < step.schedule().steps.size(); ++i) {
    if (step.schedule().steps[i].kind != StepKind::free) predicted.push_back(report.timeline[i].bytes);
  }
  EXPECT_EQ(report.measured_bytes, predicted);
  const PlanReport shown = report_step(step, "a <perceptron>");
  EXPECT_EQ(shown.peak_bytes, report.predicted_peak_bytes);
  EXPECT_EQ(shown.step->measured_bytes, predicted);
  const std::string page = plan_html(shown);
  EXPECT_NE(page.find("<title>Plan of a &lt;perceptron&gt;</title>"), std::string::npos);
  EXPECT_NE(page.find("\"measured_bytes\":[" + std::to_string(predicted.front()) + ","), std::string::npos);
  EXPECT_THROW(save_html(step, "/nowhere/step.html"), Error);
}

TEST(TrainingStep, AddsToGradientsThatExist) {
  Problem problem = perceptron(5, 0.5);
  problem.accumulate = true;  // the first step finds none, the others do
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  std::vector<std::string> notices;
  TrainingStepOptions options = quick();
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  TrainingStep step = make_step(problem, options);
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("another course than before"), std::string::npos) << notices[0];
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  EXPECT_EQ(notices.size(), 1u);
}

TEST(TrainingStep, ZeroedGradientsStayWhereTheyAre) {
  Problem problem = perceptron(5, 0.5);
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  for (const Tensor& parameter : problem.parameters) {
    Tensor(parameter).mutable_grad() = torch::ones_like(parameter);
  }
  problem.accumulate = true;
  TrainingStep step = make_step(problem);
  const auto zeroing = [&](const Batch& batch) {
    for (const Tensor& parameter : problem.parameters) {
      parameter.grad().zero_();
    }
    const void* const place = problem.parameters[0].grad().const_data_ptr();
    Tensor loss = step(batch);
    EXPECT_EQ(problem.parameters[0].grad().const_data_ptr(), place);
    return loss;
  };
  EXPECT_TRUE(same_bits(train(problem, zeroing), plain));
}

// Gradients that share a storage when captured and no longer do must not be mixed up.
TEST(TrainingStep, NoticesGradientsThatMoveApart) {
  const Tensor a = torch::randn({2, 3}, at::requires_grad());
  const Tensor b = torch::randn({2, 3}, at::requires_grad());
  const auto loss = [=](const Batch& batch) { return (torch::cat({a, b}) * batch[0]).exp().sum(); };
  const Batch batch = {torch::randn({4, 3})};
  TrainingStep step(loss, {a, b}, {}, quick());
  step(batch);
  const Tensor first_a = a.grad().clone(), first_b = b.grad().clone();
  step(batch);
  EXPECT_TRUE(same_bits(b.grad(), first_b + first_b));
  Tensor(b).mutable_grad() = torch::zeros({2, 3});
  Tensor(a).mutable_grad() = torch::zeros({2, 3});
  step(batch);
  EXPECT_TRUE(same_bits(a.grad(), first_a));
  EXPECT_TRUE(same_bits(b.grad(), first_b));
}

TEST(TrainingStep, MeasuresAgainForAnotherNumberOfThreads) {
  const Problem problem = perceptron();
  const int before = at::get_num_threads();
  std::vector<std::string> notices;
  TrainingStepOptions options = quick();
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  TrainingStep step = make_step(problem, options);
  for (const int threads : {1, 2, 1}) {
    at::set_num_threads(threads);
    const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
    EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain)) << threads;
  }
  at::set_num_threads(before);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0],
            "the step took another course than before, which was recorded: it ran with 1 threads, "
            "now with 2");
}

TEST(TrainingStep, FollowsWhatTheUserSwitches) {
  const Problem problem = perceptron();
  TrainingStep step = make_step(problem);
  const auto plain_and_ours = [&](const char* what) {
    SCOPED_TRACE(what);
    const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
    EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  };
  plain_and_ours("at first");
  Tensor(problem.parameters[0]).set_requires_grad(false);
  plain_and_ours("a frozen parameter");
  Tensor(problem.parameters[0]).set_requires_grad(true);
  plain_and_ours("and no longer");
  Tensor weight = problem.parameters[0];
  weight.set_data(weight.detach().t().contiguous().t());
  plain_and_ours("a weight in another layout");
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_cache_enabled(false);
  plain_and_ours("autocast");
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::decrement_nesting();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  plain_and_ours("no autocast");
}

TEST(TrainingStep, OtherShapesAreOtherVariants) {
  Problem problem = perceptron();
  for (const int64_t size : {4, 8, 4, 2, 8}) {
    problem.batches.push_back({torch::randn({size, 6}), torch::randint(3, {size}, at::kLong)});
  }
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStep step = make_step(problem);
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  const StepReport report = step.report();
  EXPECT_EQ(report.variants, 3);
  EXPECT_EQ(report.plain_steps, 3);
  EXPECT_EQ(report.planned_steps, 5);
}

TEST(TrainingStep, RepeatsWithoutTheFunctionWhereAskedTo) {
  Problem problem = perceptron(5, 0.5);
  for (int i = 0; i < 4; ++i) {
    problem.batches.push_back({torch::randn({8, 6}), torch::randint(3, {8}, at::kLong)});
  }
  torch::manual_seed(9);
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  for (const auto& [follow, expected] : {std::pair(0, 2), std::pair(4, 5), std::pair(100, 7)}) {
    int calls = 0;
    TrainingStepOptions options = quick();
    options.follow = follow;
    TrainingStep step(
        [&](const Batch& batch) {
          ++calls;
          return problem.loss(batch);
        },
        problem.parameters, problem.buffers, options);
    torch::manual_seed(9);
    EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain)) << follow;
    EXPECT_EQ(calls, expected) << follow;
    if (follow < 7) {
      EXPECT_THROW(step({torch::randn({4, 6}), torch::randint(3, {4}, at::kLong)}), Error);
    }
  }
}

TEST(TrainingStep, FailedStepIsFollowedByGoodOnes) {
  const Problem problem = perceptron(5, 0.5);
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStep step = make_step(problem);
  int calls = 0;
  const auto failing = [&](const Batch& batch) {
    if (calls++ > 0) {  // the first runs plainly
      EXPECT_THROW(step({batch[0], torch::full({8}, 3)}), std::exception);
    }
    return step(batch);
  };
  EXPECT_TRUE(same_bits(train(problem, failing), plain));
}

TEST(TrainingStep, ResultsStayValid) {
  const Problem problem = perceptron();
  std::vector<Tensor> losses, copies, gradients, gradient_copies;
  {
    TrainingStep made = make_step(problem);
    TrainingStep step = std::move(made);
    for (int round = 0; round < 3; ++round) {
      for (const Batch& batch : problem.batches) {
        testing::take_gradients(problem.parameters);
        losses.push_back(step(batch));
        copies.push_back(losses.back().clone());
        gradients.push_back(problem.parameters[0].grad());
        gradient_copies.push_back(gradients.back().clone());
      }
      TrainingStep other = make_step(problem);
      step = std::move(other);
    }
  }
  EXPECT_TRUE(same_bits(losses, copies));
  EXPECT_TRUE(same_bits(gradients, gradient_copies));
}

TEST(TrainingStep, TwoThreadsWithOneStepEach) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Problem problems[] = {perceptron(1), perceptron(2)};
  std::vector<Tensor> plain[2], ours[2];
  for (int i = 0; i < 2; ++i) {
    plain[i] = train(problems[i], testing::plain_step(problems[i]));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      at::set_num_threads(1);
      TrainingStep step = make_step(problems[i]);
      for (int round = 0; round < 5; ++round) {
        ours[i] = train(problems[i], std::ref(step));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  at::set_num_threads(before);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(same_bits(ours[i], plain[i])) << i;
  }
}

TEST(TrainingStep, ReportNeedsAStep) {
  const Problem problem = perceptron();
  TrainingStep step = make_step(problem);
  EXPECT_THROW(step.report(), Error);
  EXPECT_THROW(make_step(problem, quick(-1)), Error);
}

}  // namespace
}  // namespace remat
