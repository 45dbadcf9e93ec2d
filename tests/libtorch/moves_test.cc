// SPDX-License-Identifier: Apache-2.0

// Values packed and offloaded while they are idle: the bits of plain LibTorch, in the predicted bytes.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "remat/core/moves.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/libtorch/file_channel.h"
#include "remat/libtorch/measure.h"
#include "remat/libtorch/packed_values.h"
#include "remat/libtorch/training_step.h"
#include "tests/libtorch/tiny_zoo.h"
#include "tests/libtorch/training.h"
#include "tests/testing/random_moves.h"

namespace remat {
namespace {

using at::Tensor;
using testing::PlannedStep;
using testing::Problem;
using testing::same_bits;
using testing::train;

// As fast as one likes, so that even the values of tiny models are worth a transfer.
constexpr ChannelModel kFast{
    .write_bytes_per_s = 1'000'000'000, .read_bytes_per_s = 1'000'000'000, .latency_ns = 0, .alignment = 4096};

// With every value packed that can be, however small.
Recording record(const Problem& problem) {
  Recording recording = capture(problem.loss, problem.batches[0], problem.parameters,
                                {.buffers = problem.buffers, .pack = false});
  detail::find_packed_values(recording, 1);
  recording.graph.channel = kFast;
  add_moves(recording.graph);
  recording.graph = measure(recording, problem.batches[0], {.seconds = 0}).graph;
  return recording;
}

std::shared_ptr<detail::Channel> open_channel() {
  return detail::open_file_channel({.folder = ::testing::TempDir()});
}

std::map<StepKind, int> count_steps(const Graph& graph, const Plan& made) {
  std::map<StepKind, int> count;
  for (const ScheduleStep& step : rewrite(graph, made.order).steps) ++count[step.kind];
  return count;
}

class MovesZoo : public ::testing::TestWithParam<std::string> {};

TEST_P(MovesZoo, TrainTheSameWithEachKindOfMove) {
  const Problem problem = testing::zoo_problem(GetParam(), 5);
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const Recording recording = record(problem);
  const auto channel = open_channel();
  for (const bool pack : {false, true}) {
    for (const bool offload : {false, true}) {
      Recording allowed = recording;
      allowed.graph = with_moves(recording.graph, pack, offload);
      if (!pack) allowed.packed_values.clear();
      const int64_t whole = keep_all_baseline(allowed.graph).peak_bytes;
      const int64_t least = floor(allowed.graph).bytes;
      // 100, 50 and 33 %, the floor, and halfway to it, where that is more than a half.
      const std::set<int64_t> budgets = {whole, std::max(least, whole / 2), std::max(least, whole / 3), least,
                                         (whole + least) / 2};
      for (const int64_t budget : budgets) {
        SCOPED_TRACE(::testing::Message() << "pack " << pack << ", offload " << offload << ", " << budget
                                          << " of " << whole << " bytes, floor " << least);
        const Plan made = plan(allowed.graph, {.budget_bytes = budget, .strategy = "search", .max_orders = 1'000});
        ASSERT_TRUE(made.feasible);
        PlannedStep step(allowed, made, channel);
        EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
      }
    }
  }
}

// Wherever they are legal: more than a plan would make.
TEST_P(MovesZoo, TrainTheSameWithMovesOfAllKinds) {
  const Problem problem = testing::zoo_problem(GetParam(), 2);
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const Recording recording = record(problem);
  const auto channel = open_channel();
  std::mt19937_64 generator(1);
  const Schedule schedule =
      rewrite(recording.graph,
              testing::with_random_moves(generator, recording.graph, given_order(recording.graph), 2'000));
  Plan made;
  made.order = order_of(recording.graph, schedule);
  made.peak_bytes = simulate_peak(recording.graph, schedule).bytes;
  made.placement = place(recording.graph, schedule);
  auto steps = count_steps(recording.graph, made);
  EXPECT_GE(steps[StepKind::offload], 5);
  EXPECT_EQ(steps[StepKind::pack] > 0, !recording.graph.packed_forms.empty());
  PlannedStep step(recording, made, channel);
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
}

INSTANTIATE_TEST_SUITE_P(All, MovesZoo, ::testing::ValuesIn(testing::zoo_names()),
                         [](const auto& found) { return found.param; });

}  // namespace
}  // namespace remat
