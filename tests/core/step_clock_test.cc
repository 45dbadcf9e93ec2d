// SPDX-License-Identifier: Apache-2.0

// The arithmetic stands beside the numbers. A byte takes a nanosecond to be written and half of one to be
// read; each transfer 10 ns more.

#include "remat/core/step_clock.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

namespace remat {
namespace step_clock_test {

const std::optional<ChannelModel> kChannel = ChannelModel{.write_bytes_per_s = 1'000'000'000,
                                                .read_bytes_per_s = 2'000'000'000,
                                                .latency_ns = 10};

TEST(Channel, TransfersTakeTheLatencyAndTheirBytes) {
  EXPECT_EQ(kChannel->write_ns(100), 10 + 100);
  EXPECT_EQ(kChannel->read_ns(100), 10 + 50);
  EXPECT_EQ(kChannel->write_ns(0), 10);
  EXPECT_EQ(kChannel->read_ns(3), 10 + 1);  // 1.5 ns, rounded down
}

TEST(Channel, NothingOverflows) {
  constexpr int64_t kMost = (int64_t{1} << 53) - 1;
  const ChannelModel slow{.write_bytes_per_s = 1, .read_bytes_per_s = 0, .latency_ns = kMost};
  EXPECT_EQ(slow.write_ns(kMost), kMost + kMost);
  EXPECT_EQ(slow.read_ns(1), kMost + kMost);  // no rate: for ever
  const ChannelModel fast{.write_bytes_per_s = kMost, .read_bytes_per_s = kMost, .latency_ns = 0};
  EXPECT_EQ(fast.write_ns(kMost), 1'000'000'000);
  EXPECT_EQ(fast.read_ns(1), 0);
}

TEST(StepClock, OpsRunOneAfterTheOther) {
  StepClock clock(kChannel);
  EXPECT_EQ(clock.now_ns(), 0);
  clock.run(5);
  clock.run(7);
  EXPECT_EQ(clock.now_ns(), 5 + 7);
  EXPECT_EQ(clock.waited_ns(), 0);
}

TEST(StepClock, TransfersGoOnBesideTheOps) {
  StepClock clock(kChannel);
  clock.run(5);
  const int64_t written_ns = clock.write(100);
  EXPECT_EQ(written_ns, 5 + 10 + 100);
  EXPECT_EQ(clock.now_ns(), 5);  // nobody waits yet
  clock.run(200);
  clock.wait_until(written_ns);
  EXPECT_EQ(clock.now_ns(), 205);  // it has ended long ago
  EXPECT_EQ(clock.waited_ns(), 0);
}

TEST(StepClock, WhoeverNeedsATransferWaitsForItsEnd) {
  StepClock clock(kChannel);
  const int64_t written_ns = clock.write(100);
  clock.run(30);
  clock.wait_until(written_ns);
  EXPECT_EQ(clock.now_ns(), 110);
  EXPECT_EQ(clock.waited_ns(), 110 - 30);
  clock.wait_until(written_ns);
  EXPECT_EQ(clock.waited_ns(), 80);
}

TEST(StepClock, TransfersFollowEachOther) {
  StepClock clock(kChannel);
  EXPECT_EQ(clock.write(100), 110);
  EXPECT_EQ(clock.read(100), 110 + 60);
  clock.run(20);
  EXPECT_EQ(clock.write(50), 170 + 60);
  EXPECT_EQ(clock.now_ns(), 20);
}

TEST(StepClock, AnIdleChannelBeginsAtOnce) {
  StepClock clock(kChannel);
  EXPECT_EQ(clock.write(10), 20);
  clock.run(1'000);
  EXPECT_EQ(clock.read(10), 1'000 + 15);
}

TEST(StepClock, WithoutAChannelTransfersTakeNoTime) {
  const std::optional<ChannelModel> none;
  StepClock clock(none);
  clock.run(5);
  EXPECT_EQ(clock.write(1'000'000), 5);
  EXPECT_EQ(clock.read(1'000'000), 5);
}

// A file can ask for transfers and ops that add up to more than 64 bits can count: the clock stands at
// its end then. It added to that, which is undefined.
TEST(StepClock, TheEndOfTimeIsFarAwayAndFinal) {
  const std::optional<ChannelModel> slow = ChannelModel{.write_bytes_per_s = 1,
                                              .read_bytes_per_s = 1,
                                              .latency_ns = (int64_t{1} << 53) - 1};
  StepClock clock(slow);
  int64_t end_ns = 0;
  for (int i = 0; i < 2'000; ++i) {
    const int64_t next_ns = clock.write((int64_t{1} << 53) - 1);
    EXPECT_GE(next_ns, end_ns);
    end_ns = next_ns;
  }
  clock.wait_until(end_ns);
  EXPECT_EQ(clock.now_ns(), end_ns);
  clock.run(std::numeric_limits<int64_t>::max() - clock.now_ns());
  EXPECT_GT(clock.read(8), 0);
  EXPECT_GT(clock.now_ns(), end_ns);
}

}  // namespace step_clock_test
}  // namespace remat
