// SPDX-License-Identifier: Apache-2.0
// What goes wrong with the file in which values lie while a step is recorded: nothing is lost, the error says what
// happened, the next call works.
#include <gtest/gtest.h>

#include <filesystem>

#include "remat/core/error.h"
#include "tests/libtorch/fake_device.h"
#include "tests/libtorch/perceptron.h"
#include "tests/libtorch/small_disk.h"
#include "tests/libtorch/spill_files.h"

namespace remat::testing {
namespace {

using Place = Perceptron::Place;

// A training with momentum that exists already, so that nothing but tensors changes in a step, beside the same
// training without a budget.
struct SpilledTraining {
  explicit SpilledTraining(const std::string& folder)
      : step([this](const Batch& batch) { return training(batch); },
             {.budget_bytes = tight_budget(),
              .plan_seconds = kPlanSeconds,
              .measure_seconds = 0,
              .spill_folder = folder,
              .notice = [this](const std::string& text) { notices.push_back(text); }}) {
    for (Perceptron* each : {&plain, &training}) {
      torch::manual_seed(13);
      (*each)(batch_of(0));
    }
    start = generator_state();
  }

  // The message with which a call failed, which must have changed nothing; empty if it did not fail. A call that did
  // not is compared with the plain one.
  std::string call(int64_t number, int64_t rows = Perceptron::kRows) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(start);
    const std::vector<at::Tensor> before = left_by(training);
    try {
      const at::Tensor loss = step(batch_of(number, rows))[0].clone();
      const std::vector<at::Tensor> after = left_by(training);
      generator.set_state(start);
      EXPECT_TRUE(same_bits(loss, plain(batch_of(number, rows))[0]));
      EXPECT_TRUE(same_bits(after, left_by(plain)));
      start = generator_state();
      return "";
    } catch (const Error& error) {
      EXPECT_TRUE(same_bits(left_by(training), before)) << error.what();
      for (const at::Tensor& each : training.layers->parameters()) {
        EXPECT_FALSE(each.grad().defined());
      }
      return error.what();
    }
  }

  Perceptron plain{Perceptron::Optimizer::momentum};
  Perceptron training{Perceptron::Optimizer::momentum};
  at::Tensor start;  // the generator's state before the next call
  std::vector<std::string> notices;
  Step step;
};

// From a disk for next to nothing to one for everything.
TEST(SpillFaults, ADiskThatIsTooSmallUndoesTheCall) {
  SmallDisk disk(MiB);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  SpilledTraining trained(disk.folder());
  int64_t needed = 2 * MiB;
  for (; needed <= 256 * MiB; needed *= 2) {
    disk.resize(needed);
    const std::string message = trained.call(1);
    if (message.empty()) {
      break;
    }
    EXPECT_NE(message.find("No space left"), std::string::npos) << message;
    EXPECT_NE(message.find("spill_folder"), std::string::npos) << message;
  }
  EXPECT_GT(needed, 8 * MiB);
  EXPECT_LE(needed, 256 * MiB);
  for (int64_t i = 2; i < 5; ++i) {
    EXPECT_EQ(trained.call(i), "");
  }
  EXPECT_EQ(trained.step.report().planned_steps, 3);
}

// Somebody else fills it in forward, in backward, in the update, or while the recorded step is tried.
TEST(SpillFaults, ADiskThatFillsUndoesTheCallWhereverThatHappens) {
  SmallDisk disk(256 * MiB);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  for (const Place where : {Place::forward, Place::backward, Place::update, Place::after}) {
    SCOPED_TRACE(static_cast<int>(where));
    SpilledTraining trained(disk.folder());
    trained.training.on_the_way = [&](Place place) {
      if (place == where) {
        disk.fill();
      }
    };
    const std::string message = trained.call(1);
    EXPECT_NE(message.find("No space left"), std::string::npos) << message;
    EXPECT_GE(trained.training.place, where);  // what has a place in the file can still be moved there
    EXPECT_TRUE(trained.step.undone());
    trained.training.on_the_way = {};
    disk.clear();
    EXPECT_EQ(trained.call(1), "");
    EXPECT_EQ(trained.call(2), "");
    EXPECT_FALSE(trained.step.undone());
    EXPECT_EQ(trained.step.report().planned_steps, 1);
  }
}

TEST(SpillFaults, AFullDiskIsNoErrorThatAFunctionCanSwallow) {
  SmallDisk disk(2 * MiB);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  Perceptron training(Perceptron::Optimizer::momentum);
  training(batch_of(0));
  Step step(
      [&](const Batch& batch) -> Batch {
        try {
          return training(batch);
        } catch (const Error&) {
          return {batch[0].sum()};
        }
      },
      {.budget_bytes = tight_budget(), .plan_seconds = kPlanSeconds, .measure_seconds = 0, .spill_folder = disk.folder()});
  const std::vector<at::Tensor> before = left_by(training);
  EXPECT_THROW(step(batch_of(1)), Error);
  EXPECT_TRUE(same_bits(left_by(training), before));
}

TEST(SpillFaults, AFolderThatIsGoneIsNamedAndKnownCoursesGoOn) {
  const std::string folder = ::testing::TempDir() + "remat_gone_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  SpilledTraining trained(folder);
  EXPECT_EQ(trained.call(1), "");
  EXPECT_EQ(trained.call(2), "");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(trained.call(3), "");
  const std::string message = trained.call(4, Perceptron::kRows - 64);
  EXPECT_NE(message.find("'" + folder + "'"), std::string::npos) << message;
  EXPECT_NE(message.find("No such file"), std::string::npos) << message;
  EXPECT_EQ(trained.call(5), "");
  std::filesystem::create_directories(folder);
  EXPECT_EQ(trained.call(4, Perceptron::kRows - 64), "");
  EXPECT_EQ(trained.step.report().variants, 2);
  std::filesystem::remove_all(folder);
}

TEST(SpillFaults, AFileThatIsCutShortEndsTheCallAndTheNextWorks) {
  for (const Place where : {Place::forward, Place::update}) {
    SpilledTraining trained(::testing::TempDir());
    int files = 0;
    int layers = 0;
    trained.training.on_the_way = [&](Place place) {
      if (place == where && (place != Place::forward || ++layers == Perceptron::kLayers / 2)) {
        files += cut_spill_files();
      }
    };
    const std::string message = trained.call(1);
    EXPECT_EQ(files, 1);
    EXPECT_NE(message.find("was cut to"), std::string::npos) << message;
    trained.training.on_the_way = {};
    EXPECT_EQ(trained.call(1), "");
    EXPECT_EQ(trained.call(2), "");
  }
}

// Then what parameters held before is gone as well: the error says which of them are not as they were.
TEST(SpillFaults, AFileThatIsCutShortAfterTheUpdateIsNamedWithWhatIsLost) {
  SpilledTraining trained(::testing::TempDir());
  int files = 0;
  trained.training.on_the_way = [&](Place place) { files += place == Place::after ? cut_spill_files() : 0; };
  std::string message;
  try {
    trained.step(batch_of(1));
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_EQ(files, 1);
  EXPECT_NE(message.find("tensors hold what a failed step has written"), std::string::npos) << message;
  EXPECT_NE(message.find("param"), std::string::npos) << message;
  trained.training.on_the_way = {};
  EXPECT_NO_THROW(trained.step(batch_of(2)));
}

bool one_has(const std::vector<std::string>& notices, const std::string& text) {
  return std::ranges::any_of(notices, [&](const std::string& each) { return each.find(text) != std::string::npos; });
}

TEST(SpillNotice, TellsOfAFolderInMemoryOnce) {
  SmallDisk disk(512 * MiB);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  SpilledTraining trained(disk.folder());
  EXPECT_EQ(trained.call(1), "");
  ASSERT_EQ(trained.notices.size(), 1u);
  EXPECT_TRUE(one_has(trained.notices, "'" + disk.folder() + "'"));
  EXPECT_TRUE(one_has(trained.notices, "lies in memory"));
  EXPECT_FALSE(one_has(trained.notices, "has only"));
}

// While nobody knows what the step needs, room for less than the budget is little; later it is what a known course
// took, and it is told of before anything runs.
TEST(SpillNotice, TellsOfADiskWithLessRoomThanTheStepNeeds) {
  SmallDisk disk(2 * MiB);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  SpilledTraining trained(disk.folder());
  EXPECT_NE(trained.call(1), "");
  EXPECT_TRUE(one_has(trained.notices, "has only"));
  disk.resize(512 * MiB);
  EXPECT_EQ(trained.call(1), "");
  trained.notices.clear();
  disk.resize(12 * MiB);
  size_t told_before = 0;
  trained.training.on_the_way = [&](Place) { told_before = std::max(told_before, trained.notices.size()); };
  EXPECT_NE(trained.call(2, Perceptron::kRows - 64), "");
  EXPECT_GE(told_before, 1u);
  EXPECT_TRUE(one_has(trained.notices, "has only"));
  EXPECT_TRUE(one_has(trained.notices, "are expected"));
}

// A clock on which the disk takes a thousand times as long.
TEST(SpillNotice, TellsOfASlowDiskWhileTheStepIsRecorded) {
  const int64_t plain_bytes = plain_peak();
  FakeDevice device;
  const int64_t begin = device.real_now_ns();
  device.clock = [&device, begin] { return begin + 1000 * (device.real_now_ns() - begin); };
  SpilledTraining trained(::testing::TempDir());
  bool told_in_time = false;
  trained.training.on_the_way = [&](Place) {
    told_in_time = told_in_time || one_has(trained.notices, "the disk is slow");
  };
  EXPECT_EQ(trained.call(1), "");
  EXPECT_TRUE(told_in_time);
  EXPECT_GT(plain_bytes, 0);
}

}  // namespace
}  // namespace remat::testing
