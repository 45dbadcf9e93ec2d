// SPDX-License-Identifier: Apache-2.0

// Steps that pack and offload: what happens when a value, a number or the channel is not as expected.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "remat/core/error.h"
#include "remat/libtorch/channel.h"
#include "remat/libtorch/training_step.h"
#include "tests/libtorch/small_disk.h"
#include "tests/libtorch/training.h"
#include "tests/testing/skip.h"

namespace remat {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using testing::Problem;
using testing::same_bits;
using testing::train;

// In memory, and as slow, full or faulty as a test wants it.
class FakeChannel final : public detail::Channel {
 public:
  void reserve(int64_t bytes) override {
    if (bytes > room_bytes) throw Error("[offload] there is no room");
    bytes_.resize(static_cast<size_t>(std::max<int64_t>(bytes, static_cast<int64_t>(bytes_.size()))));
  }
  Ticket write(int64_t offset, const void* from, int64_t bytes) override {
    reserve(std::max(offset + bytes, static_cast<int64_t>(bytes_.size())));
    std::memcpy(bytes_.data() + offset, from, static_cast<size_t>(bytes));
    ++writes;
    return next();
  }
  Ticket read(int64_t offset, void* to, int64_t bytes) override {
    std::memcpy(to, bytes_.data() + offset, static_cast<size_t>(bytes));
    return next();
  }
  bool done(Ticket) override { return true; }
  void wait(Ticket ticket) override {
    if (ticket == failing) throw Error("[offload] 1 MiB at 0 cannot be written: No space left on device");
  }
  void drain() noexcept override {}
  int64_t alignment_bytes() const override { return 64; }
  std::string description() const override { return "memory"; }

  Ticket failing = -1;
  int64_t room_bytes = std::numeric_limits<int64_t>::max();
  int64_t writes = 0;
  Ticket requests() const { return next_; }

 private:
  Ticket next() { return next_++; }
  std::vector<char> bytes_;
  Ticket next_ = 0;
};

// Enough bytes to be worth a transfer and a pack.
Problem wide_net(double dropout = 0.2) {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::ReLU(), torch::nn::Dropout(dropout),
                            torch::nn::Linear(256, 256), torch::nn::Hardtanh(),
                            torch::nn::Linear(256, 256), torch::nn::Tanh(), torch::nn::Linear(256, 8));
  std::vector<Batch> batches;
  for (int i = 0; i < 5; ++i) {
    batches.push_back({torch::randn({512, 64}), torch::randint(8, {512}, at::kLong)});
  }
  return testing::module_problem(
      *net,
      [net](const Batch& batch) mutable { return F::cross_entropy(net->forward(batch[0]), batch[1]); },
      std::move(batches));
}

struct Trained {
  std::vector<Tensor> left;
  std::vector<std::string> notices;
  StepReport report;
  int64_t offloads = 0;
  int64_t packs = 0;
};

Trained train_with(const Problem& problem, TrainingStepOptions options) {
  Trained made;
  options.plan_seconds = 0.3;
  options.measure_seconds = 0;
  options.execute.poison = true;
  options.notice = [&](const std::string& text) { made.notices.push_back(text); };
  TrainingStep step(problem.loss, problem.parameters, problem.buffers, options);
  made.left = train(problem, std::ref(step));
  made.report = step.report();
  for (const ScheduleStep& each : step.schedule().steps) {
    made.offloads += each.kind == StepKind::offload;
    made.packs += each.kind == StepKind::pack;
  }
  return made;
}

int64_t tight_budget(const Problem& problem, TrainingStepOptions options) {
  options.strategy = "keep_all";
  const StepReport whole = train_with(problem, options).report;
  return whole.floor_bytes + (whole.keep_all_peak_bytes - whole.floor_bytes) / 4;
}

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
  TrainingStepOptions options{.pack = false, .offload_folder = ::testing::TempDir()};
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
  for (int percent = 95; percent > 20 && !missed; percent -= 15) {
    options.budget_bytes = whole.report.keep_all_peak_bytes / 100 * percent;
    if (options.budget_bytes < whole.report.floor_bytes) break;
    const Trained made = train_with(problem, options);
    EXPECT_TRUE(same_bits(made.left, plain)) << percent;
    for (const std::string& notice : made.notices) {
      missed = missed || notice.find("is no longer packed, and the step is planned again") != std::string::npos;
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

TEST(MovesStep, ADiskThatIsFullIsDoneWithout) {
  const testing::SmallDisk disk(1 * MiB);
  if (!disk.made()) {
    REMAT_SKIP(disk.why_not());
  }
  const Problem problem = wide_net();
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  TrainingStepOptions options{.pack = false};
  options.budget_bytes = tight_budget(problem, options);
  options.offload_folder = disk.folder();
  const Trained made = train_with(problem, options);
  EXPECT_TRUE(same_bits(made.left, plain));
  EXPECT_FALSE(made.notices.empty());
}

}  // namespace
}  // namespace remat
