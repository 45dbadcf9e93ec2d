// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/measure.h"

#include <gtest/gtest.h>

#include "remat/libtorch/capture.h"
#include "tests/libtorch/fake_device.h"
#include "tests/libtorch/testing.h"

namespace remat::testing {
namespace {

constexpr double kAnHour = 3600;  // on the fake clock: the time does not end the rounds

Measurement measured_with(const std::function<int64_t()>& clock) {
  torch::nn::Linear layer(8, 8);
  const Batch batch = {torch::ones({4, 8})};
  const Recording recording = capture(
      [&](const Batch& given) { return layer->forward(given[0]).tanh().sum(); }, batch, layer->parameters());
  FakeDevice device;
  device.clock = clock;
  return measure(recording, batch, {.seconds = kAnHour, .time_whole_step = false});
}

TEST(Measure, EndsOnceTheMediansHaveSettled) {
  int64_t now_ns = 0;
  const Measurement found = measured_with([&] { return now_ns += 1000; });
  EXPECT_EQ(found.rounds, 5);  // the least, and two that change nothing
  for (const Op& op : found.graph.ops) {
    EXPECT_EQ(op.time_ns, 1000) << op.name;
  }
}

TEST(Measure, GoesOnWhileTheMediansMove) {
  int64_t now_ns = 0;
  int64_t tick_ns = 0;
  const Measurement found = measured_with([&] { return now_ns += ++tick_ns; });
  EXPECT_EQ(found.rounds, MeasureOptions().max_rounds);
}

}  // namespace
}  // namespace remat::testing
