// SPDX-License-Identifier: Apache-2.0
// The first call of a step that does not fit.
#include <gtest/gtest.h>

#include <set>

#include "remat/core/graph_text.h"
#include "remat/core/verify.h"
#include "remat/libtorch/step_plan.h"
#include "tests/libtorch/fake_device.h"
#include "tests/libtorch/perceptron.h"

namespace remat::testing {
namespace {

using at::Tensor;

TEST(FirstCall, ThatDoesNotFitIsRecordedWithItsValuesInAFile) {
  std::vector<Tensor> state;
  const std::vector<Tensor> losses = plain_losses(5, state);
  const int64_t budget = tight_budget();
  int64_t most_spilled = 0;
  std::set<StepProgress::Stage> stages;
  StepOptions options{.budget_bytes = budget, .plan_seconds = kPlanSeconds, .measure_seconds = 0};
  options.progress = [&](const StepProgress& progress) {
    most_spilled = std::max(most_spilled, progress.spilled_bytes);
    stages.insert(progress.stage);
  };
  const Course found = train(5, std::move(options));
  EXPECT_TRUE(same_bits(found.losses, losses));
  EXPECT_TRUE(same_bits(found.state, state));
  EXPECT_GT(most_spilled, budget);
  EXPECT_EQ(stages.size(), 4u);
  EXPECT_LE(found.report.peak_bytes, budget);
  EXPECT_EQ(found.report.measured_peak_bytes, found.report.predicted_peak_bytes);
  EXPECT_GT(found.report.spilled_bytes, 0);
  EXPECT_TRUE(found.notices.empty()) << found.notices.front();  // it is nothing unusual
}

// It said at every op that the step was done.
TEST(FirstCall, NobodyKnowsHowManyOpsThereAreUntilOneIsRecorded) {
  std::vector<std::set<int64_t>> totals(1);
  int64_t most_done = 0;
  StepOptions options{.plan_seconds = kPlanSeconds, .measure_seconds = 0};
  options.progress = [&](const StepProgress& progress) {
    if (progress.stage == StepProgress::Stage::record) {
      totals.back().insert(progress.ops_total);
      most_done = std::max(most_done, progress.ops_done);
    }
  };
  train(2, std::move(options), [&](Step&, int64_t i) {
    if (i > 0) {
      totals.emplace_back();
    }
  });
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0], std::set<int64_t>{0});
  EXPECT_GT(*totals[1].begin(), most_done / 2);  // of the first recording, which also made the optimizer's state
}

TEST(FirstCall, AFunctionThatThrowsWhileValuesAreInAFileLosesNothing) {
  const int64_t budget = tight_budget();
  Perceptron training;
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = budget, .plan_seconds = kPlanSeconds, .measure_seconds = 0});
  Perceptron same;
  training.throws_at = 1;
  EXPECT_THROW(step(batch_of(0)), std::runtime_error);
  same.throws_at = 1;
  torch::manual_seed(12);
  EXPECT_THROW(same(batch_of(0)), std::runtime_error);
  EXPECT_TRUE(same_bits(left_by(training), left_by(same)));
  const Tensor generator = generator_state();
  const Tensor found = step(batch_of(1))[0].clone();
  at::Generator shared = at::detail::getDefaultCPUGenerator();
  shared.set_state(generator);
  EXPECT_TRUE(same_bits(found, same(batch_of(1))[0]));
}

// A smaller batch of a program that is planned already is first run in the known order.
TEST(FirstCall, OfAnotherBatchSizeRunsUnderTheKnownPlan) {
  FakeDevice device;
  device.tick_by(1000);
  constexpr int64_t kFewerRows = Perceptron::kRows - 128;
  const auto rows_of = [](int64_t i) { return i < 3 ? Perceptron::kRows : kFewerRows; };
  Perceptron plain;
  std::vector<Tensor> losses;
  for (int64_t i = 0; i < 6; ++i) {
    losses.push_back(plain(batch_of(i, rows_of(i)))[0].clone());
  }
  const std::vector<Tensor> state = left_by(plain);
  Perceptron training;
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = tight_budget(), .plan_seconds = kPlanSeconds, .measure_seconds = 0});
  std::vector<Tensor> found;
  for (int64_t i = 0; i < 6; ++i) {
    found.push_back(step(batch_of(i, rows_of(i)))[0].clone());
    if (i > 0) {
      EXPECT_EQ(step.report().from_other_size, i >= 3) << i;
      EXPECT_LE(step.report().peak_bytes, tight_budget());
    }
  }
  EXPECT_TRUE(same_bits(found, losses));
  EXPECT_TRUE(same_bits(left_by(training), state));
  EXPECT_EQ(step.report().variants, 2);
  EXPECT_EQ(step.report().plain_steps, 3);
}

constexpr const char* kChain = R"(remat-graph 1
external w 100 param
op a forward kind=k time_ns=5 reads=w creates=x:SIZE
op b forward kind=k time_ns=5 reads=x creates=y:SIZE
op c backward kind=k time_ns=5 reads=x,y creates=z:SIZE
output z
)";

Graph chain_of(const std::string& bytes, const std::string& kind = "k") {
  std::string text = kChain;
  for (size_t at = 0; (at = text.find("SIZE")) != std::string::npos;) {
    text.replace(at, 4, bytes);
  }
  text.replace(text.find("op c backward kind=k"), 20, "op c backward kind=" + kind);
  return parse_graph(text);
}

TEST(PlanOfOtherSize, IsTheSameOrderWithOtherAddresses) {
  const Graph known = chain_of("640");
  const detail::StepPlan planned = detail::plan_step(known, {}, kNoBudget, 0.1);
  const Graph graph = chain_of("1280");
  const auto made = detail::plan_of_other_size(graph, known, planned, 100 + 3 * 1280);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->plan.order, planned.plan.order);
  EXPECT_EQ(made->plan.peak_bytes, 100 + 3 * 1280);
  EXPECT_EQ(made->plan.placement->arena_bytes, 3 * 1280);
  EXPECT_FALSE(verify(graph, made->schedule, 100 + 3 * 1280).has_value());
}

TEST(PlanOfOtherSize, IsNoneForAnotherProgramOrWhereItDoesNotFit) {
  const Graph known = chain_of("640");
  const detail::StepPlan planned = detail::plan_step(known, {}, kNoBudget, 0.1);
  EXPECT_FALSE(detail::plan_of_other_size(chain_of("1280", "other"), known, planned, kNoBudget).has_value());
  EXPECT_FALSE(detail::plan_of_other_size(chain_of("1280"), known, planned, 100 + 3 * 1280 - 1).has_value());
}

}  // namespace
}  // namespace remat::testing
