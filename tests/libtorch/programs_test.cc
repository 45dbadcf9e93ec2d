// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/programs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "tests/libtorch/testing.h"

// The table of programs: each is the same as its plain loop, bit for bit, or is refused by name.

namespace remat {
namespace {

using testing::ProgramCase;

std::vector<ProgramCase> all_programs() {
  std::vector<ProgramCase> all;
  for (std::vector<ProgramCase> theme :
       {testing::host_made_programs(), testing::host_read_programs(), testing::changing_programs(),
        testing::layout_programs(), testing::kept_programs(), testing::update_programs(),
        testing::autograd_programs(), testing::failing_programs()}) {
    std::move(theme.begin(), theme.end(), std::back_inserter(all));
  }
  return all;
}

class Programs : public ::testing::TestWithParam<ProgramCase> {};

TEST_P(Programs, SameAsThePlainLoop) { testing::expect_same_as_plain_loop(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, Programs, ::testing::ValuesIn(all_programs()),
                         [](const auto& instance) { return instance.param.name; });

class RefusedPrograms : public ::testing::TestWithParam<ProgramCase> {};

TEST_P(RefusedPrograms, SaysWhy) { testing::expect_refused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, RefusedPrograms, ::testing::ValuesIn(testing::refused_programs()),
                         [](const auto& instance) { return instance.param.name; });

// The table means something only while its programs run long enough.
TEST(ProgramTable, IsLongEnough) {
  const std::vector<ProgramCase> all = all_programs();
  EXPECT_GE(all.size(), 45u);
  for (const ProgramCase& program : all) {
    EXPECT_GE(program.make().batches.size(), 6u) << program.name;
  }
}

ProgramCase program_called(const std::string& name) {
  const std::vector<ProgramCase> all = all_programs();
  return *std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
}

// Runs a program as a step and returns what it was told.
std::vector<std::string> notices_of(const ProgramCase& which) {
  torch::manual_seed(17);
  const testing::Program program = which.make();
  std::vector<std::string> notices;
  Step step(program.step, {.plan_seconds = 0.2,
                           .measure_seconds = 0,
                           .notice = [&](const std::string& text) { notices.push_back(text); }});
  for (const Batch& batch : program.batches) {
    step(batch);
  }
  return notices;
}

TEST(ProgramNotices, AProgramThatDiffersEveryTimeIsSaidToRunPlainlyOnce) {
  const std::vector<std::string> notices = notices_of(program_called("DifferentCourseAtEveryStep"));
  const auto plainly = [](const std::string& text) {
    return text.find("plainly") != std::string::npos;
  };
  ASSERT_EQ(std::count_if(notices.begin(), notices.end(), plainly), 1);
  const std::string text = *std::find_if(notices.begin(), notices.end(), plainly);
  EXPECT_NE(text.find("aten::"), std::string::npos) << text;
}

TEST(ProgramNotices, AnotherCourseIsToldOnceAndWhereItBegins) {
  const std::vector<std::string> notices =
      notices_of(program_called("DropoutProbabilityThatBecomesZero"));
  const std::set<std::string> different(notices.begin(), notices.end());
  EXPECT_FALSE(notices.empty());
  EXPECT_EQ(different.size(), notices.size());
}

TEST(ProgramNotices, NumbersThatAreTakenOverAreNotWorthOne) {
  EXPECT_LE(notices_of(program_called("TemperatureThatChanges")).size(), 1u);
}

// An op that fails by itself may be run later than the plain loop runs it. What the step has then
// done is undone, or it is what the plain loop has done before the op.
TEST(ProgramFailures, AnOpThatFailsLeavesAStateToGoOnFrom) {
  torch::manual_seed(17);
  const testing::Classifier classifier;
  const auto state = [&] {
    std::vector<at::Tensor> all = testing::clones(classifier.net->buffers());
    all.push_back(testing::generator_state());
    return all;
  };
  Step step([&](const Batch& batch) { return classifier.update(classifier.loss(batch)); },
            {.plan_seconds = 0.2, .measure_seconds = 0, .execute = {.poison = true}});
  std::vector<Batch> batches = testing::make_batches(9);
  for (size_t i = 0; i < batches.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const std::vector<at::Tensor> parameters = testing::clones(classifier.net->parameters());
    const std::vector<at::Tensor> before = state();
    const bool fails = i % 3 == 2;
    if (fails) {
      batches[i][1][5] = testing::Classifier::kClasses + 4;
      EXPECT_THROW(step(batches[i]), c10::IndexError);
    } else {
      step(batches[i]);
    }
    const std::vector<at::Tensor> found_parameters = testing::clones(classifier.net->parameters());
    const std::vector<at::Tensor> found = state();

    // The same step plainly.
    const at::NoGradGuard no_grad;
    for (size_t p = 0; p < parameters.size(); ++p) {
      classifier.net->parameters()[p].copy_(parameters[p]);
    }
    for (size_t b = 0; b + 1 < before.size(); ++b) {
      classifier.net->buffers()[b].copy_(before[b]);
    }
    at::Generator(at::detail::getDefaultCPUGenerator()).set_state(before.back());
    const at::AutoGradMode with_grad(true);
    if (fails) {
      EXPECT_THROW(classifier.update(classifier.loss(batches[i])), c10::IndexError);
      EXPECT_TRUE(testing::same_bits(found, before) || testing::same_bits(found, state()));
    } else {
      classifier.update(classifier.loss(batches[i]));
      EXPECT_TRUE(testing::same_bits(found, state()));
    }
    EXPECT_TRUE(
        testing::same_bits(found_parameters, testing::clones(classifier.net->parameters())));
  }
}

}  // namespace
}  // namespace remat
