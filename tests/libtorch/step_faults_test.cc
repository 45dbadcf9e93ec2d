// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "remat/core/error.h"
#include "tests/libtorch/fault_trainer.h"

namespace remat::testing {
namespace {

StepOptions quick(int64_t budget_bytes = kNoBudget) {
  return {.budget_bytes = budget_bytes,
          .plan_seconds = 0.1,
          .measure_seconds = 0,
          .execute = {.poison = true}};
}

// A trainer under a Step beside one in a plain loop.
struct Twins {
  explicit Twins(Reads reads, int64_t budget_bytes = kNoBudget)
      : plain(reads),
        planned(reads),
        step([this](const Batch& batch) { return planned(batch); }, quick(budget_bytes)) {}

  std::optional<std::string> run_step(const Batch& batch) {
    return planned.run([this](const Batch& given) { return step(given); }, batch);
  }

  // One step that does not fail, in both, with the same outcome.
  void expect_same_step(int number) {
    const Batch batch = fault_batch(number);
    EXPECT_EQ(plain.run_plainly(batch), std::nullopt);
    EXPECT_EQ(run_step(fault_batch(number)), std::nullopt);
    EXPECT_EQ(difference(plain.whole_state(), planned.whole_state()), "") << "step " << number;
  }

  // One step that fails at a statement, in both, with the same outcome.
  void expect_same_fault(int number, int statement) {
    plain.throw_at(statement);
    planned.throw_at(statement);
    const auto expected = plain.run_plainly(fault_batch(number));
    ASSERT_TRUE(expected.has_value());
    EXPECT_EQ(run_step(fault_batch(number)), expected);
    EXPECT_EQ(difference(plain.whole_state(), planned.whole_state()), "")
        << "thrown at statement " << statement << " of step " << number;
  }

  void take_detour(bool yes) { plain.takes_detour = planned.takes_detour = yes; }

  FaultTrainer plain;
  FaultTrainer planned;
  Step step;
};

int statements_of(Reads reads, bool takes_detour = false) {
  FaultTrainer trainer(reads);
  trainer.takes_detour = takes_detour;
  trainer.run_plainly(fault_batch(0));
  return trainer.statements();
}

// The least budget that fits, or up to 5 % more. Tensors are tiny here: what is lost between their
// addresses counts.
int64_t tight_budget(Reads reads) {
  Twins free(reads);
  for (int i = 0; i < 3; ++i) {
    free.expect_same_step(i);
  }
  int64_t budget = free.step.report().floor_bytes;
  const auto fits = [&] {
    Twins twins(reads, budget);
    bool thrown = false;
    for (int i = 0; i < 3; ++i) {
      thrown |= twins.run_step(fault_batch(i)).has_value();
    }
    return !thrown;
  };
  while (!fits()) {
    budget += budget / 20;
  }
  return budget;
}

class StepFaults : public ::testing::TestWithParam<Reads> {};

TEST_P(StepFaults, ExceptionInTheFirstCall) {
  const int statements = statements_of(GetParam());
  ASSERT_GT(statements, 25);
  for (int k = 0; k < statements; ++k) {
    Twins twins(GetParam());
    twins.expect_same_fault(0, k);
    twins.expect_same_step(1);
    if (k % 4 == 0) {
      twins.expect_same_step(2);
      twins.expect_same_step(3);
    }
  }
}

TEST_P(StepFaults, ExceptionInAFollowedCall) {
  for (const int64_t budget : {kNoBudget, tight_budget(GetParam())}) {
    Twins twins(GetParam(), budget);
    int number = 0;
    while (number < 3) {
      twins.expect_same_step(number++);
    }
    const int64_t planned_before = twins.step.report().planned_steps;
    const int statements = statements_of(GetParam());
    for (int k = 0; k < statements; ++k) {
      twins.expect_same_fault(number++, k);
      twins.expect_same_step(number++);
    }
    // What was not planned when it failed proves nothing about following. Gradients that a failed step
    // left behind make the next one another course.
    EXPECT_GE(twins.step.report().planned_steps, planned_before + statements / 2);
  }
}

// The step leaves what is known before it fails: a part of it was followed, a part is recorded.
TEST_P(StepFaults, ExceptionAfterAnotherCourseWasTaken) {
  Twins twins(GetParam());
  int number = 0;
  while (number < 3) {
    twins.expect_same_step(number++);
  }
  const int statements = statements_of(GetParam(), /*takes_detour=*/true);
  for (int k = 4; k < statements; ++k) {
    twins.take_detour(true);
    twins.expect_same_fault(number++, k);
    twins.take_detour(k % 3 == 0);
    twins.expect_same_step(number++);
  }
}

TEST_P(StepFaults, ExceptionsInARow) {
  Twins twins(GetParam());
  int number = 0;
  while (number < 3) {
    twins.expect_same_step(number++);
  }
  const int statements = statements_of(GetParam());
  for (int k = 0; k < statements; k += 3) {
    twins.expect_same_fault(number++, k);
  }
  twins.expect_same_step(number++);
  twins.expect_same_step(number++);
}

TEST_P(StepFaults, ExceptionsOfHooksThatTheFunctionCatches) {
  Twins twins(GetParam());
  twins.plain.catches = twins.planned.catches = true;
  int number = 0;
  while (number < 3) {
    twins.expect_same_step(number++);
  }
  const int statements = statements_of(GetParam());
  int caught = 0;
  for (int k = 0; k < statements; ++k) {
    twins.plain.throw_at(k);
    twins.planned.throw_at(k);
    const auto expected = twins.plain.run_plainly(fault_batch(number));
    caught += expected ? 0 : 1;
    EXPECT_EQ(twins.run_step(fault_batch(number++)), expected);
    EXPECT_EQ(difference(twins.plain.whole_state(), twins.planned.whole_state()), "")
        << "thrown at statement " << k;
    twins.expect_same_step(number++);
  }
  EXPECT_EQ(caught, 8);  // the hook on an activation and one on each of seven parameters
}

// The first call runs the function plainly: the kernel fails there and then.
TEST_P(StepFaults, KernelsThatFailInTheFirstCall) {
  for (const Site site : kSites) {
    SCOPED_TRACE(name_of(site));
    Twins twins(GetParam());
    const auto expected = twins.plain.run_plainly(fault_batch(0, site));
    ASSERT_TRUE(expected.has_value());
    const auto thrown = twins.run_step(fault_batch(0, site));
    ASSERT_TRUE(thrown.has_value());
    EXPECT_NE(thrown->find("out of"), std::string::npos) << *thrown;
    EXPECT_EQ(difference(twins.plain.whole_state(), twins.planned.whole_state()), "");
    twins.expect_same_step(1);
    twins.expect_same_step(2);
    twins.expect_same_step(3);
  }
}

// The kernel fails when the schedule runs, after the function or in one of its reads.
TEST_P(StepFaults, KernelsThatFailInAFollowedCallLeaveTheStateBefore) {
  for (const int64_t budget : {kNoBudget, tight_budget(GetParam())}) {
    Twins twins(GetParam(), budget);
    int number = 0;
    while (number < 3) {
      twins.expect_same_step(number++);
    }
    for (const Site site : kSites) {
      SCOPED_TRACE(name_of(site));
      const NamedTensors before = twins.planned.lasting_state();
      const auto thrown = twins.run_step(fault_batch(number++, site));
      ASSERT_TRUE(thrown.has_value());
      EXPECT_NE(thrown->find("out of"), std::string::npos) << *thrown;
      EXPECT_EQ(difference(before, twins.planned.lasting_state()), "");
      twins.expect_same_step(number++);
      twins.expect_same_step(number++);
    }
  }
}

// As the plain loop leaves it, or as before the step.
TEST_P(StepFaults, KernelsThatFailAfterAnotherCourseWasTaken) {
  for (const Site site : kSites) {
    SCOPED_TRACE(name_of(site));
    Twins twins(GetParam());
    int number = 0;
    while (number < 3) {
      twins.expect_same_step(number++);
    }
    const NamedTensors before = twins.planned.lasting_state();
    twins.take_detour(true);
    ASSERT_TRUE(twins.plain.run_plainly(fault_batch(number, site)).has_value());
    const auto thrown = twins.run_step(fault_batch(number++, site));
    ASSERT_TRUE(thrown.has_value());
    EXPECT_NE(thrown->find("out of"), std::string::npos) << *thrown;
    const NamedTensors after = twins.planned.lasting_state();
    const std::string from_before = difference(before, after);
    EXPECT_TRUE(from_before.empty() || difference(twins.plain.lasting_state(), after).empty())
        << from_before;
  }
}

std::string name_of_reads(const ::testing::TestParamInfo<Reads>& instance) {
  static constexpr const char* kNames[] = {"Nowhere", "InForward", "TheLoss"};
  return kNames[static_cast<size_t>(instance.param)];
}

INSTANTIATE_TEST_SUITE_P(Reading, StepFaults,
                         ::testing::Values(Reads::nowhere, Reads::in_forward, Reads::the_loss),
                         name_of_reads);

}  // namespace
}  // namespace remat::testing
