// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/saved_plan.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "remat/core/error.h"
#include "remat/libtorch/training_step.h"
#include "tests/libtorch/tiny_zoo.h"
#include "tests/libtorch/training.h"

namespace remat {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using testing::Problem;
using testing::same_bits;
using testing::train;

// A file that goes with the test.
class TemporaryFile {
 public:
  TemporaryFile() {
    static int count = 0;
    path = std::filesystem::temp_directory_path() /
           detail::concat("remat_saved_plan_test_", ::getpid(), "_", count++, ".plan");
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string text() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }

  std::string path;
};

// A program with a few things that may differ from one process to the next.
struct Program {
  int64_t batch = 8;
  int64_t hidden = 8;
  at::ScalarType dtype = at::kFloat;
  double dropout = 0.5;
  int64_t sum_dim = 1;
  bool more = false;
};

Problem problem_of(const Program& program) {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(8, program.hidden), torch::nn::BatchNorm1d(program.hidden),
                            torch::nn::Tanh(), torch::nn::Linear(program.hidden, 8));
  net->to(program.dtype);
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) {
    batches.push_back({torch::randn({program.batch, 8}, program.dtype)});
  }
  return testing::module_problem(
      *net,
      [net, program](const Batch& batch) mutable {
        Tensor x = torch::cumsum(net->forward(batch[0]), program.sum_dim);
        x = torch::dropout(x, program.dropout, /*train=*/true);
        return (program.more ? x.tanh() : x).square().sum();
      },
      std::move(batches));
}

struct Told {
  std::vector<std::string> notices;
  std::string all() const {
    std::string text;
    for (const std::string& each : notices) text += each + "\n";
    return text;
  }
};

TrainingStep step_of(const Problem& problem, Told& told, TrainingStepOptions options = {}) {
  options.plan_seconds = 0.2;
  options.measure_seconds = 0;
  options.execute.poison = true;
  options.notice = [&told](const std::string& text) { told.notices.push_back(text); };
  return TrainingStep(problem.loss, problem.parameters, problem.buffers, std::move(options));
}

// The plan of a step that was made anew, as another process would.
PlanFile planned(const Program& program, const TemporaryFile& file, int64_t budget_bytes = kNoBudget) {
  const Problem problem = problem_of(program);
  Told told;
  TrainingStep step = step_of(problem, told, {.budget_bytes = budget_bytes});
  step(problem.batches[0]);
  step.save_plan(file.path);
  EXPECT_EQ(print_plan_file(step.plan_file()), file.text());
  return load_plan(file.path);
}

// The reason for which a program does not get the plan; empty if it does. It is trained all the same.
std::string refusal(const PlanFile& plan, const Program& program, int64_t budget_bytes = kNoBudget) {
  const Problem problem = problem_of(program);
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  Told told;
  TrainingStep step = step_of(problem, told, {.budget_bytes = budget_bytes, .saved_plan = plan});
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  const StepReport report = step.report();
  EXPECT_EQ(report.from_saved_plan, report.saved_plan_refused.empty());
  EXPECT_EQ(report.measured_peak_bytes, report.predicted_peak_bytes);
  EXPECT_EQ(report.counts.outside_allocations, 0);
  EXPECT_LE(report.peak_bytes, budget_bytes);
  EXPECT_EQ(told.all().find(report.saved_plan_refused) != std::string::npos, true) << told.all();
  return report.saved_plan_refused;
}

std::string error_of(const std::string& path) {
  try {
    load_plan(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' without '" << part << "'";
}

TEST(SavedPlan, StartsWithoutMeasuringAndPlanning) {
  const TemporaryFile file, again;
  const PlanFile plan = planned({}, file);
  const Problem problem = problem_of({});
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  Told told;
  TrainingStep step = step_of(problem, told, {.saved_plan = plan});
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  const StepReport report = step.report();
  EXPECT_TRUE(report.from_saved_plan);
  EXPECT_EQ(report.measure_seconds, 0);
  EXPECT_EQ(report.plan_seconds, 0);
  EXPECT_EQ(report.plain_steps, 1);
  EXPECT_EQ(report.planned_steps, 2);
  EXPECT_EQ(told.all(), "");
  EXPECT_EQ(step.graph(), plan.courses[0].graph);  // times included
  EXPECT_EQ(step.schedule(), plan.courses[0].schedule);
  step.save_plan(again.path);
  EXPECT_EQ(again.text(), file.text());
}

class SavedPlanZoo : public ::testing::TestWithParam<std::string> {};

TEST_P(SavedPlanZoo, TrainsTheSameInsideItsBudget) {
  const TemporaryFile file;
  const Problem problem = testing::zoo_problem(GetParam());
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  Told told;
  TrainingStep whole = step_of(problem, told);
  whole(problem.batches[0]);
  const StepReport first = whole.report();
  const int64_t budget = (first.keep_all_peak_bytes + first.floor_bytes) / 2;
  train(problem, testing::plain_step(problem));  // drops the gradients
  TrainingStep planner = step_of(problem, told, {.budget_bytes = budget});
  train(problem, std::ref(planner));
  planner.save_plan(file.path);

  const Problem other = testing::zoo_problem(GetParam());
  TrainingStep step = step_of(other, told, {.budget_bytes = budget, .saved_plan = load_plan(file.path)});
  EXPECT_TRUE(same_bits(train(other, std::ref(step)), plain));
  const StepReport report = step.report();
  EXPECT_TRUE(report.from_saved_plan) << report.saved_plan_refused;
  EXPECT_EQ(report.measured_peak_bytes, report.predicted_peak_bytes);
  EXPECT_LE(report.peak_bytes, budget);
}

INSTANTIATE_TEST_SUITE_P(Two, SavedPlanZoo, ::testing::Values("resnet18", "gpt2_small"),
                         [](const auto& instance) { return instance.param; });

TEST(SavedPlan, HoldsEveryCourse) {
  const TemporaryFile file;
  Problem problem = problem_of({});
  problem.batches.push_back({torch::randn({5, 8})});
  Told told;
  TrainingStep planner = step_of(problem, told);
  train(problem, std::ref(planner));
  planner.save_plan(file.path);
  const PlanFile plan = load_plan(file.path);
  ASSERT_EQ(plan.courses.size(), 2u);
  EXPECT_EQ(plan.courses[1].inputs, std::vector<std::string>{"input0:Float[5,8]"});
  EXPECT_EQ(refusal(plan, {}), "");
  EXPECT_EQ(refusal(plan, {.batch = 5}), "");
}

TEST(SavedPlan, NumbersThatChangeFromStepToStepAreNoOtherProgram) {
  const TemporaryFile file;
  EXPECT_EQ(refusal(planned({.dropout = 0.5}, file), {.dropout = 0.25}), "");
}

TEST(SavedPlan, PlanOfAnotherProgramIsRefusedWithTheReason) {
  const TemporaryFile file;
  const PlanFile plan = planned({}, file);
  expect_in("it was made for a batch of input0:Float[8,8]; this one is input0:Float[4,8]",
            refusal(plan, {.batch = 4}));
  expect_in("it was made for a batch of input0:Float[8,8]; this one is input0:Double[8,8]",
            refusal(plan, {.dtype = at::kDouble}));
  expect_in("it was made for another program: param0 has 256 bytes in the plan and 512 here",
            refusal(plan, {.hidden = 16}));
  expect_in("(aten::tanh) in the other", refusal(plan, {.more = true}));
  expect_in("its ops are the same, but a constant, a type or a view is not",
            refusal(plan, {.sum_dim = 0}));
}

TEST(SavedPlan, PlanForMoreThanTheBudgetIsRefused) {
  const TemporaryFile file;
  const PlanFile plan = planned({}, file);
  const int64_t needed = plan.courses[0].reserved_bytes();
  EXPECT_EQ(refusal(plan, {}, needed), "");
  expect_in("the budget is ", refusal(plan, {}, needed - 1));
}

TEST(SavedPlan, PlanForOtherThreadsIsRefused) {
  const TemporaryFile file;
  const int threads = at::get_num_threads();
  PlanFile plan = planned({}, file);
  plan.courses[0].threads = threads + 1;
  expect_in(detail::concat("it was made with ", threads + 1, " threads; the step runs with ", threads),
            refusal(plan, {}));
}

TEST(SavedPlan, PlanOfAGraphFileIsForThatGraph) {
  const TemporaryFile file;
  PlanFile plan = planned({}, file);
  plan.libtorch = "none";
  plan.courses[0].fingerprint.reset();
  plan.courses[0].inputs.clear();
  plan.courses[0].threads = 0;
  save_plan(plan, file.path);
  EXPECT_EQ(refusal(load_plan(file.path), {}), "");
  expect_in("it was made for another program", refusal(load_plan(file.path), {.more = true}));
}

TEST(SavedPlan, OtherVersionsAreRefused) {
  const TemporaryFile file;
  const PlanFile plan = planned({}, file);
  PlanFile other = plan;
  other.library = "0.0.9";
  save_plan(other, file.path);
  expect_in("the plan was made by remat 0.0.9; this is " + std::string(library_version()),
            error_of(file.path));
  other = plan;
  other.libtorch = "1.0.0";
  save_plan(other, file.path);
  expect_in("the plan was made with LibTorch 1.0.0; this is " + std::string(libtorch_version()),
            error_of(file.path));
}

TEST(SavedPlan, FilesThatAreNoPlansAreRefused) {
  const TemporaryFile file;
  expect_in("cannot read " + file.path + ": No such file or directory", error_of(file.path));
  expect_in("cannot read", error_of(std::filesystem::temp_directory_path()));
  file.write("");
  expect_in("line 1: found ''; expected the header 'remat-plan 1'", error_of(file.path));
  planned({}, file);
  const std::string text = file.text();
  file.write(text.substr(0, text.size() / 2));
  expect_in("a part of it is missing", error_of(file.path));
  std::string flipped = text;
  flipped[text.size() / 2] ^= 1;
  file.write(flipped);
  expect_in("the file is damaged, or was changed", error_of(file.path));
}

TEST(SavedPlan, NothingToSaveAndNowhereToSaveToAreErrors) {
  const TemporaryFile file;
  const Problem problem = problem_of({});
  Told told;
  TrainingStep step = step_of(problem, told);
  EXPECT_THROW(step.save_plan(file.path), Error);
  EXPECT_THROW(step.plan_file(), Error);
  EXPECT_FALSE(std::filesystem::exists(file.path));
  step(problem.batches[0]);
  EXPECT_THROW(step.save_plan("/nowhere/at/all.plan"), Error);
}

}  // namespace
}  // namespace remat
