// SPDX-License-Identifier: Apache-2.0
// Budgets that change between calls: because the program says so, or because memory is short.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "remat/core/error.h"
#include "remat/libtorch/budget.h"
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

// Two courses of one training: the batch has all of its rows, or few of them.
struct TwoCourses {
  static constexpr int64_t kFewRows = Perceptron::kRows / 16;

  explicit TwoCourses(StepOptions options) : step_options(std::move(options)) {
    step_options.plan_seconds = kPlanSeconds;
    step_options.measure_seconds = 0;
    step_options.notice = [this](const std::string& text) { notices.push_back(text); };
    step.emplace([this](const Batch& batch) { return training(batch); }, step_options);
    call(Perceptron::kRows);
    call(Perceptron::kRows);
    call(kFewRows);
  }
  // Returns the budget that the call ran in; 0 before there is a plan.
  int64_t call(int64_t rows) {
    const Batch batch = batch_of(calls++, rows);
    losses.push_back((*step)(batch)[0].clone());
    const Tensor generator = generator_state();
    at::Generator shared = at::detail::getDefaultCPUGenerator();
    shared.set_state(plain_generator);
    EXPECT_TRUE(same_bits(losses.back(), plain(batch)[0])) << calls;
    plain_generator = generator_state();
    EXPECT_TRUE(same_bits(generator, plain_generator));
    shared.set_state(generator);
    return calls < 2 ? 0 : step->report().budget_bytes;
  }
  int64_t said(const std::string& what) const {
    return std::ranges::count_if(notices, [&](const std::string& each) { return each.find(what) != std::string::npos; });
  }

  Perceptron plain;
  Perceptron training;
  Tensor plain_generator = generator_state();
  StepOptions step_options;
  std::optional<Step> step;
  std::vector<Tensor> losses;
  std::vector<std::string> notices;
  int64_t calls = 0;
};

// It was looked for in the course that ran last only, and the next call of the other one ended the training.
TEST(Budget, ThatOneOfTheCoursesDoesNotFitLeavesTheOneFromBeforeForAll) {
  TwoCourses two({.budget_bytes = plain_peak()});
  const int64_t small = two.step->report().keep_all_peak_bytes;
  two.call(Perceptron::kRows);
  const int64_t least = least_budget(*two.step);
  ASSERT_LT(small + small / 10, least);  // everything of the one fits where nothing of the other does
  two.call(TwoCourses::kFewRows);
  EXPECT_THROW(two.step->set_budget_bytes(small + small / 10), Infeasible);
  EXPECT_EQ(two.step->report().budget_bytes, plain_peak());
  EXPECT_EQ(two.call(Perceptron::kRows), plain_peak());
  two.step->set_budget_bytes(plain_peak() / 2);
  EXPECT_EQ(two.call(TwoCourses::kFewRows), plain_peak() / 2);
  EXPECT_EQ(two.call(Perceptron::kRows), plain_peak() / 2);
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

// The budget came back to what it was before memory was short, above what the user had said meanwhile.
TEST(MemoryPressure, DoesNotGiveBackMoreThanTheUserAllows) {
  FakeDevice device;
  const int64_t whole = plain_peak();
  const MemoryPressure none{.left_bytes = 10 * whole};
  const MemoryPressure some{.left_bytes = 10 * whole, .stalled_percent = 50};
  device.pressure = none;
  TwoCourses two({.budget_bytes = whole, .watch_memory = true});
  two.call(Perceptron::kRows);
  device.pressure = some;
  const int64_t lowered = two.call(Perceptron::kRows);
  EXPECT_EQ(lowered, whole - whole / 10);
  const int64_t asked = lowered / 10 * 9;
  two.step->set_budget_bytes(asked);
  device.pressure = none;
  EXPECT_EQ(two.call(Perceptron::kRows), asked);
  device.pressure = some;
  EXPECT_LT(two.call(Perceptron::kRows), asked);
  device.pressure = none;
  EXPECT_EQ(two.call(Perceptron::kRows), asked);
  EXPECT_EQ(two.call(TwoCourses::kFewRows), asked);
}

// Afterwards it was a number of bytes for courses to come.
TEST(MemoryPressure, LeavesABudgetThatIsAskedForWhatItIs) {
  FakeDevice device;
  device.pressure = {.left_bytes = 10 * plain_peak()};
  int64_t asked = 0;
  const int64_t whole = plain_peak();
  TwoCourses two({.budget_of =
                      [&](const Graph&) {
                        ++asked;
                        return whole;
                      },
                  .watch_memory = true});
  EXPECT_EQ(asked, 2);
  device.pressure->stalled_percent = 50;
  EXPECT_LT(two.call(Perceptron::kRows), whole);
  EXPECT_LT(two.call(Perceptron::kRows / 2), whole);  // a new course, planned inside of what may be used now
  EXPECT_EQ(asked, 3);
  device.pressure->stalled_percent = 0;
  EXPECT_EQ(two.call(Perceptron::kRows / 2), whole);
  EXPECT_EQ(two.call(Perceptron::kRows), whole);
  two.call(Perceptron::kRows / 8);
  two.call(Perceptron::kRows / 8);  // the fourth course: planned when it comes again
  EXPECT_EQ(asked, 4);
}

// The budget falls as far as one course has plans for; the other one, which needs more, ended the training.
TEST(MemoryPressure, OfACourseThatNeedsMoreTheLeastPlanIsTaken) {
  FakeDevice device;
  const int64_t whole = plain_peak();
  device.pressure = {.left_bytes = 10 * whole};
  TwoCourses two({.budget_bytes = whole, .watch_memory = true});
  two.call(Perceptron::kRows);
  const int64_t least = least_budget(*two.step);
  device.pressure->stalled_percent = 50;
  int64_t budget = whole;
  for (int i = 0; i < 20 && budget > least / 10 * 9; ++i) {
    budget = two.call(TwoCourses::kFewRows);
  }
  ASSERT_LE(budget, least / 10 * 9);
  device.pressure->stalled_percent = 5;  // nothing changes
  two.notices.clear();
  const int64_t found = two.call(Perceptron::kRows);
  EXPECT_LT(found, whole);
  EXPECT_GE(found, least);
  EXPECT_LE(two.step->report().peak_bytes, found);
  EXPECT_EQ(two.said("there is no plan for less than"), 1) << two.notices.size();
  EXPECT_EQ(two.call(TwoCourses::kFewRows), budget);
  EXPECT_EQ(two.call(Perceptron::kRows), found);
  EXPECT_EQ(two.notices.size(), 1u);  // it is known now
  device.pressure->stalled_percent = 0;
  EXPECT_EQ(two.call(Perceptron::kRows), whole);
  EXPECT_EQ(two.call(TwoCourses::kFewRows), whole);
}

// A budget of available_memory() leaves a tenth of what was there. That was taken for pressure, by remat's own arena.
TEST(MemoryPressure, IsNotWhatABudgetOfAvailableMemoryLeaves) {
  const int64_t whole = plain_peak();
  FakeDevice device;
  device.available = 30 * MiB;
  device.pressure = {.left_bytes = 30 * MiB};
  Perceptron training;
  std::vector<std::string> notices;
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_of = available_memory(),
             .plan_seconds = kPlanSeconds,
             .measure_seconds = 0,
             .watch_memory = true,
             .notice = [&](const std::string& text) { notices.push_back(text); }});
  step(batch_of(0));
  step(batch_of(1));
  const StepReport first = step.report();
  ASSERT_LT(first.budget_bytes, whole);
  const int64_t room = first.budget_bytes - first.external_bytes;  // nine tenths of what was left
  EXPECT_NEAR(static_cast<double>(room), 27.0 * MiB, 1);
  // All of the arena is used: 3 MiB are left. A tenth of the budget, which has 4 to 6 MiB of parameters and state in
  // it, would be more.
  device.pressure->left_bytes = *device.available - room;
  EXPECT_LT(device.pressure->left_bytes, first.budget_bytes / 10);
  step(batch_of(2));
  EXPECT_EQ(step.report().budget_bytes, first.budget_bytes);
  EXPECT_TRUE(notices.empty()) << notices.front();
  device.pressure->left_bytes = room / 20 - 1;  // somebody else has taken more than half of that
  step(batch_of(3));
  EXPECT_LT(step.report().budget_bytes, first.budget_bytes);
  device.pressure->left_bytes = *device.available - (step.report().budget_bytes - first.external_bytes);
  step(batch_of(4));  // and is gone
  EXPECT_EQ(step.report().budget_bytes, first.budget_bytes);
  EXPECT_EQ(notices.size(), 2u);
}

TEST(MemoryPressure, ThatNoPlanCanFollowEndsAtTheFloor) {
  FakeDevice device;  // outlives the step, whose arena is of this device
  device.tick_by(1000);
  Perceptron training;
  std::vector<std::string> notices;
  int64_t looks = 0;  // of ops that run, and of a planner at its work
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = plain_peak(),
             .plan_seconds = kPlanSeconds,
             .measure_seconds = 0,
             .watch_memory = true,
             .notice = [&](const std::string& text) { notices.push_back(text); },
             .host = {.poll = [&] { ++looks; }}});
  device.pressure = {.left_bytes = 100 * plain_peak()};
  step(batch_of(0));
  step(batch_of(1));
  const int64_t floor = least_budget(step);
  step.set_budget_bytes(floor + floor / 20);
  device.pressure = {.left_bytes = 0};
  const std::string end = "there is no plan for less than ";
  const auto said_that = [&](const std::string& words) {
    return std::ranges::any_of(notices, [&](const std::string& each) { return each.find(words) != std::string::npos; });
  };
  int64_t calls = 2;
  while (!said_that(end) && calls < 20) {  // a search may go lower than the one that reported the floor
    step(batch_of(calls++));
  }
  const int64_t least = step.report().budget_bytes;
  EXPECT_LT(least, floor + floor / 20);
  EXPECT_TRUE(said_that(end + format_bytes(least)));
  EXPECT_TRUE(said_that("the budget goes from"));
  const size_t said = notices.size();
  const auto looks_in_call = [&] {
    const int64_t before = looks;
    step(batch_of(calls++));
    return looks - before;
  };
  const int64_t looks_while_short = looks_in_call();  // there is no plan for less: none is looked for
  EXPECT_EQ(step.report().budget_bytes, least);
  EXPECT_EQ(notices.size(), said);
  device.pressure = {.left_bytes = 100 * plain_peak(), .stalled_percent = 1};
  EXPECT_EQ(looks_while_short, looks_in_call());
  EXPECT_EQ(step.report().planned_steps, calls - 2);
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
