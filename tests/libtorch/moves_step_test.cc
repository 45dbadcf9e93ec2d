// SPDX-License-Identifier: Apache-2.0

// Steps that pack and offload: what happens when a value, a number or the channel is not as expected.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "remat/core/error.h"
#include "tests/libtorch/channel_fixture.h"
#include "tests/libtorch/moves_fixture.h"
#include "tests/libtorch/small_disk.h"
#include "tests/testing/skip.h"

namespace remat {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using testing::FakeChannel;
using testing::Problem;
using testing::same_bits;
using testing::tight_budget;
using testing::train;
using testing::train_with;
using testing::Trained;
using testing::wide_net;

TEST(MovesStep, PacksAndOffloadsWithTheSameBitsInsideItsBudget) {
  const Problem problem = wide_net();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const auto channel = std::make_shared<FakeChannel>();
  TrainingStepOptions options{.execute = {.channel = channel}};
  options.budget_bytes = tight_budget(problem, options);
  const Trained made = train_with(problem, options);
  EXPECT_TRUE(same_bits(made.left, plain));
  EXPECT_TRUE(made.notices.empty()) << made.notices.front();
  EXPECT_GT(made.packs + made.offloads, 0);
  EXPECT_EQ(made.report.measured_peak_bytes, made.report.predicted_peak_bytes);
  EXPECT_LE(made.report.peak_bytes, options.budget_bytes);
  EXPECT_EQ(made.report.channel, "memory");
}

TEST(MovesStep, OffloadsToAFile) {
  const Problem problem = wide_net();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStepOptions options{.pack = false, .offload_folder = "/var/tmp"};  // /tmp may lie in memory
  options.budget_bytes = tight_budget(problem, options);
  const Trained made = train_with(problem, options);
  EXPECT_TRUE(same_bits(made.left, plain));
  EXPECT_NE(made.report.channel.find("a file in"), std::string::npos);
  EXPECT_EQ(made.packs, 0);
}

TEST(MovesStep, AFolderThatIsNotThereIsRefusedAtOnce) {
  const Problem problem = wide_net();
  EXPECT_THROW(TrainingStep(problem.loss, problem.parameters, problem.buffers,
                            {.offload_folder = "/nowhere"}),
               Error);
}

// It was accepted in silence, and "offloaded" values went on taking memory.
TEST(MovesStep, AFolderInMemoryIsRefusedAtOnce) {
  const testing::SmallDisk disk(64 * MiB);
  if (!disk.made()) {
    REMAT_SKIP(disk.why_not());
  }
  const Problem problem = wide_net();
  const std::string error = testing::error_of([&] {
    TrainingStep(problem.loss, problem.parameters, problem.buffers, {.offload_folder = disk.folder()});
  });
  EXPECT_TRUE(testing::has(error, "lies in memory itself (tmpfs)")) << error;
}

// NaN is not packed by hardtanh's rule: the step is undone, planned without it and run again.
TEST(MovesStep, AValueThatTheRuleDoesNotExpectIsNoLongerPacked) {
  Problem problem = wide_net();
  problem.batches[3][0] = problem.batches[3][0].clone();
  problem.batches[3][0][0][0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStepOptions options{.strategy = "pack_only"};
  const Trained whole = train_with(problem, options);
  ASSERT_TRUE(same_bits(whole.left, plain));
  // Everything that can be packed is.
  options.budget_bytes = whole.report.keep_all_peak_bytes - 1;
  options.strategy = "search";
  bool missed = false;
  options.notice = [&](const std::string& notice) {
    missed = missed || testing::has(notice, "is no longer packed, and the step is planned again");
  };
  for (int percent = 95; percent > 20 && !missed; percent -= 5) {
    options.budget_bytes = whole.report.keep_all_peak_bytes / 100 * percent;
    if (options.budget_bytes < whole.report.floor_bytes) break;
    try {
      EXPECT_TRUE(same_bits(train_with(problem, options).left, plain)) << percent;
    } catch (const Infeasible&) {
      EXPECT_TRUE(missed) << "a plan that packs the value fits, and later none";
    }
  }
  EXPECT_TRUE(missed) << "no plan packed the value";
}

TEST(MovesStep, ANumberThatChangesWhatIsKeptIsTakenOver) {
  torch::manual_seed(5);
  Tensor weight = torch::randn({512, 64}).requires_grad_();
  auto threshold = std::make_shared<double>(0.1);
  Problem problem{.parameters = {weight},
                  .loss =
                      [=](const Batch& batch) {
                        *threshold += 0.05;
                        Tensor x = weight * batch[0];
                        for (int i = 0; i < 4; ++i) x = at::threshold(x, *threshold, 0.0) + batch[0];
                        return x.square().sum();
                      }};
  for (int i = 0; i < 4; ++i) problem.batches.push_back({torch::randn({512, 64})});
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  for (const char* strategy : {"keep_all", "search"}) {
    *threshold = 0.1;
    TrainingStepOptions options{.strategy = strategy};
    if (std::string_view(strategy) == "search") {
      *threshold = 0.1;
      options.budget_bytes = tight_budget(problem, {});
      *threshold = 0.1;
    }
    EXPECT_TRUE(same_bits(train_with(problem, options).left, plain)) << strategy;
  }
}

// Whatever request fails, nothing is lost: the step is undone, and goes on without the channel.
TEST(MovesStep, AChannelThatFailsIsDoneWithout) {
  const Problem problem = wide_net();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStepOptions options{.pack = false, .execute = {.channel = std::make_shared<FakeChannel>()}};
  options.budget_bytes = tight_budget(problem, options);
  const auto counted = std::make_shared<FakeChannel>();
  options.execute.channel = counted;
  ASSERT_TRUE(same_bits(train_with(problem, options).left, plain));
  const int64_t requests = counted->requests();
  ASSERT_GT(counted->writes, 0);
  int failed = 0;
  for (int64_t at = 0; at < requests; at += std::max<int64_t>(1, requests / 12)) {
    SCOPED_TRACE(at);
    const auto channel = std::make_shared<FakeChannel>();
    channel->failing = at;
    options.execute.channel = channel;
    const Trained made = train_with(problem, options);
    EXPECT_TRUE(same_bits(made.left, plain));
    for (const std::string& notice : made.notices) {
      failed += notice.find("without offloading") != std::string::npos ||
                notice.find("nothing is offloaded") != std::string::npos;
    }
  }
  EXPECT_GT(failed, 3);
}

// Every course loses its plan with the channel, and gets another one at its next call. Until then there is none to be
// saved, or to be taken for another size of the batch: both ended with an error about an empty order.
TEST(MovesStep, AfterAChannelHasFailedPlansAreSavedAndOtherSizesOfTheBatchAreRecorded) {
  Problem problem = wide_net();
  const Batch whole = problem.batches[0];
  const auto rows = [&](int64_t count) {
    return Batch{whole[0].narrow(0, 0, count).clone(), whole[1].narrow(0, 0, count).clone()};
  };
  TrainingStepOptions options{.plan_seconds = 0.3,
                              .measure_seconds = 0,
                              .pack = false,
                              .execute = {.channel = std::make_shared<FakeChannel>()}};
  options.budget_bytes = tight_budget(problem, options);
  const auto channel = std::make_shared<FakeChannel>();
  options.execute.channel = channel;
  std::vector<std::string> notices;
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  torch::manual_seed(1);
  TrainingStep step(problem.loss, problem.parameters, problem.buffers, options);
  const auto call = [&](int64_t count) {
    for (const Tensor& each : problem.parameters) each.mutable_grad().reset();
    const Tensor state = testing::generator_state();
    const Tensor loss = step(rows(count)).clone();
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(state);
    EXPECT_TRUE(same_bits(loss, problem.loss(rows(count)).detach())) << count;
  };
  call(448);
  call(512);
  ASSERT_EQ(step.report().variants, 2);
  ASSERT_GT(channel->writes, 0);
  channel->failing = channel->requests();
  call(512);
  ASSERT_FALSE(notices.empty()) << "no request failed";
  EXPECT_NE(notices.back().find("without offloading"), std::string::npos) << notices.back();
  EXPECT_EQ(step.plan_file().courses.size(), 1u);  // of the course that has a plan again
  call(480);  // a new course, beside one without a plan
  EXPECT_EQ(step.report().variants, 3);
  EXPECT_EQ(step.plan_file().courses.size(), 2u);
  call(448);
  EXPECT_EQ(step.plan_file().courses.size(), 3u);
}

TEST(MovesStep, AChannelWithoutRoomIsDoneWithout) {
  const Problem problem = wide_net();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStepOptions options{.pack = false, .execute = {.channel = std::make_shared<FakeChannel>()}};
  options.budget_bytes = tight_budget(problem, options);
  for (const int64_t room : {int64_t{0}, 256 * KiB}) {
    const auto channel = std::make_shared<FakeChannel>();
    channel->room_bytes = room;
    options.execute.channel = channel;
    const Trained made = train_with(problem, options);
    EXPECT_TRUE(same_bits(made.left, plain));
    EXPECT_EQ(made.offloads, 0);
    EXPECT_FALSE(made.notices.empty());
  }
}

// It is measured with some room, and the plan wants more.
TEST(MovesStep, AChannelWithoutRoomForThePlanIsDoneWithout) {
  const Problem problem = wide_net();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStepOptions options{.pack = false, .execute = {.channel = std::make_shared<FakeChannel>()}};
  options.budget_bytes = tight_budget(problem, options);
  const auto channel = std::make_shared<FakeChannel>();
  channel->reserves_left = 1;  // for the measurement
  options.execute.channel = channel;
  const Trained made = train_with(problem, options);
  EXPECT_TRUE(same_bits(made.left, plain));
  EXPECT_EQ(made.offloads, 0);
  ASSERT_EQ(made.notices.size(), 1u);
  EXPECT_TRUE(testing::has(made.notices[0], "there is no room; the step is planned again, without offloading"));
  EXPECT_EQ(made.report.channel, "");
}

// Where the first call of a course lost it, the step went on to plan each new course with it.
TEST(MovesStep, AChannelThatOneCourseLostIsNotPlannedWithAgain) {
  Problem problem = wide_net();
  TrainingStepOptions options{.pack = false, .execute = {.channel = std::make_shared<FakeChannel>()}};
  options.budget_bytes = tight_budget(problem, options);
  for (size_t i = 3; i < problem.batches.size(); ++i) {
    for (Tensor& each : problem.batches[i]) each = each.narrow(0, 0, 384).contiguous();
  }
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const auto channel = std::make_shared<FakeChannel>();
  channel->reserves_left = 1;
  options.execute.channel = channel;
  const Trained made = train_with(problem, options);
  EXPECT_TRUE(same_bits(made.left, plain));
  EXPECT_EQ(made.report.variants, 2);
  const auto lost = [](const std::string& notice) { return testing::has(notice, "without offloading"); };
  EXPECT_EQ(std::ranges::count_if(made.notices, lost), 1);
}

// As slow as a disk of 50 MB/s.
TEST(MovesStep, ASlowDiskIsWaitedFor) {
  const Problem problem = wide_net();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const auto slow = [](std::unique_ptr<detail::FileTransfers> real) {
    return std::make_unique<testing::FaultyTransfers>(std::move(real), testing::Faults{.bytes_per_second = 50'000'000});
  };
  TrainingStepOptions options{.strategy = "keep_all", .pack = false};
  options.execute.channel =
      detail::open_file_channel({.folder = ::testing::TempDir(), .around_transfers = slow});
  const StepReport whole = train_with(problem, options).report;
  options.strategy = "offload_only";
  bool offloaded = false;
  for (int percent = 95; percent >= 50 && !offloaded; percent -= 5) {
    options.budget_bytes = whole.keep_all_peak_bytes / 100 * percent;
    const Trained made = train_with(problem, options);
    EXPECT_TRUE(same_bits(made.left, plain)) << percent;
    EXPECT_TRUE(made.notices.empty()) << made.notices.front();
    EXPECT_EQ(made.report.measured_peak_bytes, made.report.predicted_peak_bytes);
    offloaded = made.offloads > 0;
  }
  EXPECT_TRUE(offloaded);
}

TEST(MovesStep, ADiskThatIsFullIsDoneWithout) {
  const testing::SmallDisk disk(1 * MiB);
  if (!disk.made()) {
    REMAT_SKIP(disk.why_not());
  }
  const Problem problem = wide_net();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStepOptions options{.pack = false};
  options.budget_bytes = tight_budget(problem, options);
  options.execute.channel = detail::open_file_channel({.folder = disk.folder()});
  const Trained made = train_with(problem, options);
  EXPECT_TRUE(same_bits(made.left, plain));
  ASSERT_FALSE(made.notices.empty());
  EXPECT_TRUE(testing::has(made.notices[0], "nothing is offloaded")) << made.notices[0];
}

}  // namespace
}  // namespace remat
