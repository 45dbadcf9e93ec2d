// SPDX-License-Identifier: Apache-2.0
// Budgets that change between calls: because the program says so, or because memory is short.
#include <gtest/gtest.h>

#include <stdexcept>

#include "remat/core/error.h"
#include "tests/libtorch/fake_device.h"
#include "tests/libtorch/perceptron.h"

namespace remat::testing {
namespace {

using at::Tensor;
using detail::MemoryPressure;

// The least for which there is a plan with addresses: a little more than the live bytes that report() tells.
int64_t least_budget(Step& step) {
  try {
    step.set_budget_bytes(MiB);
  } catch (const Infeasible& infeasible) {
    return infeasible.floor_bytes;
  }
  throw std::logic_error("a plan for 1 MiB was found");
}

// 100 %, 60 %, 80 %, the floor, 100 %: four steps each.
TEST(Budget, ChangesBetweenStepsWithoutRecordingAgain) {
  std::vector<Tensor> state;
  const std::vector<Tensor> losses = plain_losses(20, state);
  const int64_t whole = plain_peak() + MiB;
  int64_t recorded = 0;
  int64_t floor_bytes = 0;
  StepOptions options{.budget_bytes = whole, .plan_seconds = kPlanSeconds, .measure_seconds = 0};
  options.progress = [&](const StepProgress& progress) {
    recorded += progress.stage == StepProgress::Stage::record ? 1 : 0;
  };
  int64_t recorded_in_two = 0;
  const Course found = train(20, std::move(options), [&](Step& step, int64_t i) {
    if (i == 4) {
      recorded_in_two = recorded;
      floor_bytes = least_budget(step);
      EXPECT_GE(floor_bytes, step.report().floor_bytes);
    }
    const int64_t share[] = {whole, whole / 10 * 6, whole / 10 * 8, floor_bytes, whole};
    if (i >= 4 && i % 4 == 0) {
      step.set_budget_bytes(share[i / 4]);
    }
    if (i > 4) {
      EXPECT_EQ(step.report().budget_bytes, share[i / 4]);
      EXPECT_LE(step.report().peak_bytes, share[i / 4]);
    }
  });
  EXPECT_TRUE(same_bits(found.losses, losses));
  EXPECT_TRUE(same_bits(found.state, state));
  EXPECT_EQ(recorded, recorded_in_two);
  EXPECT_EQ(found.report.plain_steps, 2);
}

TEST(Budget, ThatNoPlanFitsLeavesTheOneFromBefore) {
  Perceptron training;
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = plain_peak(), .plan_seconds = kPlanSeconds, .measure_seconds = 0});
  step(batch_of(0));
  step(batch_of(1));
  const int64_t before = step.report().budget_bytes;
  EXPECT_THROW(step.set_budget_bytes(MiB), Infeasible);
  EXPECT_THROW(step.set_budget_bytes(0), Error);
  EXPECT_EQ(step.report().budget_bytes, before);
  step(batch_of(2));
  EXPECT_EQ(step.report().planned_steps, 1);
}

// Plans that were made before are taken again, not made again.
TEST(Budget, ThatComesBackFindsItsPlan) {
  Perceptron training;
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = plain_peak(), .plan_seconds = kPlanSeconds, .measure_seconds = 0});
  step(batch_of(0));
  step(batch_of(1));
  const int64_t whole = plain_peak();
  const std::vector<int64_t> budgets = {whole / 10 * 6, whole / 10 * 8, whole};
  std::vector<std::vector<OpId>> orders;
  for (const int64_t budget : budgets) {
    step.set_budget_bytes(budget);
    orders.push_back(step.plan().order);
  }
  const double seconds = step.report().plan_seconds;
  for (size_t i = 0; i < budgets.size(); ++i) {
    step.set_budget_bytes(budgets[i]);
    EXPECT_EQ(step.plan().order, orders[i]);
    EXPECT_EQ(step.report().budget_bytes, budgets[i]);
    step(batch_of(2));
  }
  EXPECT_EQ(step.report().plan_seconds, seconds);
  EXPECT_EQ(step.report().planned_steps, 3);
}

// The system waits for memory: the budget falls, step by step; it comes back when nobody waits any more.
TEST(MemoryPressure, MakesTheNextStepsUseLessUntilItIsGone) {
  std::vector<Tensor> state;
  const std::vector<Tensor> losses = plain_losses(8, state);
  const int64_t whole = plain_peak();
  FakeDevice device;
  std::vector<int64_t> budgets;
  const Course found = train(
      8, {.budget_bytes = whole, .plan_seconds = kPlanSeconds, .measure_seconds = 0, .watch_memory = true},
      [&](Step& step, int64_t i) {
        if (i >= 3) {
          budgets.push_back(step.report().budget_bytes);
          EXPECT_LE(step.report().peak_bytes, budgets.back());
        }
        const bool waits = i == 3 || i == 4;
        device.pressure = {.left_bytes = 10 * whole, .stalled_percent = waits ? 50.0 : i == 5 ? 1.0 : 0.0};
      });
  ASSERT_EQ(budgets.size(), 5u);
  EXPECT_EQ(budgets[0], whole);
  EXPECT_EQ(budgets[1], whole - whole / 10);
  EXPECT_EQ(budgets[2], budgets[1] - budgets[1] / 10);
  EXPECT_EQ(budgets[3], budgets[2]);  // somebody still waits, a little
  EXPECT_EQ(budgets[4], whole);
  ASSERT_EQ(found.notices.size(), 3u);
  EXPECT_NE(found.notices[0].find("memory is short"), std::string::npos) << found.notices[0];
  EXPECT_NE(found.notices[0].find("50 % of the time"), std::string::npos) << found.notices[0];
  EXPECT_NE(found.notices[2].find("memory is there again"), std::string::npos) << found.notices[2];
  EXPECT_TRUE(same_bits(found.losses, losses));
  EXPECT_TRUE(same_bits(found.state, state));
}

TEST(MemoryPressure, ThatNoPlanCanFollowEndsAtTheFloor) {
  FakeDevice device;  // outlives the step, whose arena is of this device
  device.tick_by(1'000'000);
  Perceptron training;
  std::vector<std::string> notices;
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = plain_peak(),
             .plan_seconds = kPlanSeconds,
             .measure_seconds = 0,
             .watch_memory = true,
             .notice = [&](const std::string& text) { notices.push_back(text); }});
  device.pressure = {.left_bytes = 100 * plain_peak()};
  step(batch_of(0));
  step(batch_of(1));
  const int64_t floor = least_budget(step);
  step.set_budget_bytes(floor + floor / 20);
  device.pressure = {.left_bytes = MiB};  // less than a tenth of the budget is left
  step(batch_of(2));
  const int64_t least = step.report().budget_bytes;
  EXPECT_LT(least, floor + floor / 20);
  EXPECT_GE(least, floor);
  ASSERT_EQ(notices.size(), 1u);
  step(batch_of(3));  // there is no plan for less: nothing changes, nothing is said
  EXPECT_EQ(step.report().budget_bytes, least);
  EXPECT_EQ(notices.size(), 1u);
  EXPECT_EQ(step.report().planned_steps, 2);
}

TEST(MemoryPressure, IsLookedAtOnlyIfAskedFor) {
  FakeDevice device;
  device.pressure = {.left_bytes = 0, .stalled_percent = 100};
  const Course found = train(4, {.budget_bytes = plain_peak(), .plan_seconds = kPlanSeconds, .measure_seconds = 0});
  EXPECT_EQ(found.report.budget_bytes, plain_peak());
  EXPECT_TRUE(found.notices.empty());
}

}  // namespace
}  // namespace remat::testing
