// SPDX-License-Identifier: Apache-2.0
// Plans that get better while steps run.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <optional>

#include "remat/core/verify.h"
#include "remat/libtorch/step_plan.h"
#include "tests/libtorch/fake_device.h"
#include "tests/libtorch/perceptron.h"

namespace remat::testing {
namespace {

using at::Tensor;

int64_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// While the step is recorded and first planned, a clock on which every op takes as long as any other. By real times
// it is better to compute other values again.
TEST(BackgroundPlan, TakesOverBetweenTwoStepsWithTheSameBits) {
  constexpr int64_t kMostSteps = 300;
  const int64_t budget = plain_peak() / 2;
  FakeDevice device;
  device.tick_by(1'000'000);
  Perceptron training;
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = budget, .plan_seconds = kPlanSeconds, .background_plan_seconds = 0});
  std::vector<Tensor> found;
  int64_t taken_over_at = -1;
  for (int64_t i = 0; i < kMostSteps && (taken_over_at < 0 || i < taken_over_at + 3); ++i) {
    found.push_back(step(batch_of(i))[0].clone());
    if (i == 1) {
      EXPECT_EQ(step.report().improved_plans, 0);
      device.clock = {};
    }
    if (i >= 1) {
      EXPECT_LE(step.report().peak_bytes, budget);
      EXPECT_FALSE(verify(step.graph(), step.schedule(), budget).has_value());
      if (taken_over_at < 0 && step.report().improved_plans == 1) {
        taken_over_at = i;
      }
    }
  }
  EXPECT_GT(taken_over_at, 3) << "no better plan has taken over";
  EXPECT_EQ(step.report().plain_steps, 2);
  const std::vector<Tensor> left = left_by(training);
  std::vector<Tensor> state;
  const std::vector<Tensor> losses = plain_losses(static_cast<int64_t>(found.size()), state);
  EXPECT_TRUE(same_bits(found, losses));
  EXPECT_TRUE(same_bits(left, state));
}

// A step that takes long is planned quickly, and timed; with little memory left the better plan is made while nothing
// runs, before a call. Whatever happens there, calls that are complete do not look as if they had failed.
struct ShortOfMemory {
  explicit ShortOfMemory(std::function<void()> poll = {}) {
    device.clock = [this] { return ticks += 1'000'000; };
    step.emplace([this](const Batch& batch) { return training(batch); },
                 StepOptions{.budget_bytes = plain_peak() / 2,
                             .plan_seconds = kPlanSeconds,
                             .background_plan_seconds = 0,
                             .host = {.poll = std::move(poll)}});
  }
  FakeDevice device;
  std::atomic<int64_t> ticks = 0;
  Perceptron training;
  std::optional<Step> step;
};

TEST(BackgroundPlan, IsMadeBeforeACallWhereMemoryIsShort) {
  std::vector<Tensor> state;
  const std::vector<Tensor> losses = plain_losses(8, state);
  const int64_t threads = threads_of_process();
  ShortOfMemory trained;
  for (int64_t i = 0; i < 8; ++i) {
    if (i == 2) {
      trained.device.clock = {};  // by real times other values are made again
      trained.device.available = MiB;
    }
    const double planned_seconds = i > 1 ? trained.step->report().plan_seconds : 0;
    EXPECT_TRUE(same_bits((*trained.step)(batch_of(i))[0], losses[static_cast<size_t>(i)])) << i;
    EXPECT_LE(threads_of_process(), threads);
    if (i > 1) {
      EXPECT_EQ(trained.step->report().plan_seconds > planned_seconds, i == 4) << i;
      EXPECT_LE(trained.step->report().peak_bytes, plain_peak() / 2);
    }
  }
  EXPECT_TRUE(same_bits(left_by(trained.training), state));
}

// It was made after a call, which had then been interrupted with its update applied.
TEST(BackgroundPlan, ThatIsInterruptedBeforeACallIsMadeBeforeTheNext) {
  std::vector<Tensor> state;
  const std::vector<Tensor> losses = plain_losses(6, state);
  bool interrupt = false;
  ShortOfMemory trained([&] {
    if (interrupt) {
      throw Interrupted("enough");
    }
  });
  for (int64_t i = 0; i < 6; ++i) {
    if (i == 2) {
      trained.device.available = MiB;
    }
    if (i == 4) {
      interrupt = true;
      const int64_t calls = trained.training.calls;
      EXPECT_THROW((*trained.step)(batch_of(i)), Interrupted);
      EXPECT_TRUE(trained.step->undone());
      EXPECT_EQ(trained.training.calls, calls);
      interrupt = false;
    }
    const double planned_seconds = i > 1 ? trained.step->report().plan_seconds : 0;
    EXPECT_TRUE(same_bits((*trained.step)(batch_of(i))[0], losses[static_cast<size_t>(i)])) << i;
    EXPECT_FALSE(trained.step->undone());
    if (i > 1) {
      EXPECT_EQ(trained.step->report().plan_seconds > planned_seconds, i == 4) << i;
    }
  }
  EXPECT_TRUE(same_bits(left_by(trained.training), state));
}

// A search that would go on for a minute ends with its owner, and its thread is gone.
TEST(BackgroundPlan, EndsWithItsOwner) {
  Perceptron training;
  Step step([&](const Batch& batch) { return training(batch); }, {.plan_seconds = kPlanSeconds, .measure_seconds = 0});
  step(batch_of(0));
  step(batch_of(1));
  const int64_t before = threads_of_process();
  {
    const detail::BackgroundPlan endless(step.graph(), {.plan_seconds = 60}, plain_peak() / 2);
    EXPECT_EQ(threads_of_process(), before + 1);
    EXPECT_FALSE(endless.done());
  }
  EXPECT_EQ(threads_of_process(), before);
}

TEST(BackgroundPlan, OfAStepEndsWithTheStep) {
  FakeDevice device;
  device.tick_by(1000);
  int64_t most = 0;
  for (int64_t steps = 4; steps < 7; ++steps) {
    Perceptron training;
    Step step([&](const Batch& batch) { return training(batch); },
              {.budget_bytes = plain_peak() / 2, .plan_seconds = 60, .background_plan_seconds = 0});
    for (int64_t i = 0; i < steps; ++i) {
      step(batch_of(i));
    }
    most = std::max(most, threads_of_process());
  }
  EXPECT_EQ(most, threads_of_process() + 1) << "no plan was made in the background";
}

// The runner of the new budget was told to time its ops into what the better plan, once it was there, had freed.
TEST(BackgroundPlan, ThatIsMadeForABudgetOfBeforeLeavesNothingBehind) {
  constexpr int64_t kMostSteps = 300;
  FakeDevice device;
  device.tick_by(1000);
  Perceptron training;
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = plain_peak(), .plan_seconds = kPlanSeconds, .background_plan_seconds = 0});
  std::vector<Tensor> found;
  const auto run = [&] { found.push_back(step(batch_of(static_cast<int64_t>(found.size())))[0].clone()); };
  run();
  run();
  const int64_t threads = threads_of_process();
  while (threads_of_process() == threads && static_cast<int64_t>(found.size()) < kMostSteps) {
    run();
  }
  ASSERT_EQ(threads_of_process(), threads + 1) << "no plan was made in the background";
  step.set_budget_bytes(plain_peak() / 4 * 3);
  while (threads_of_process() > threads && static_cast<int64_t>(found.size()) < kMostSteps) {
    run();
  }
  for (int i = 0; i < 3; ++i) {
    run();
  }
  EXPECT_EQ(step.report().improved_plans, 0);
  EXPECT_LE(step.report().peak_bytes, plain_peak() / 4 * 3);
  std::vector<Tensor> state;
  const std::vector<Tensor> losses = plain_losses(static_cast<int64_t>(found.size()), state);
  EXPECT_TRUE(same_bits(found, losses));
  EXPECT_TRUE(same_bits(left_by(training), state));
}

}  // namespace
}  // namespace remat::testing
