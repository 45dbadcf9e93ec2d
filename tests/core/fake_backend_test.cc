// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_backend.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "remat/core/graph_text.h"
#include "remat/core/order/cost.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"
#include "tests/testing/replaced.h"
#include "tests/testing/sabotage.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace fake_backend_test {

using testing::replaced;

using testing::execute_fake;
using testing::FakeOutcome;
using testing::run_plain;

void expect_same_bits(const FakeOutcome& found, const FakeOutcome& expected) {
  EXPECT_EQ(found.outputs, expected.outputs);
  EXPECT_EQ(found.externals, expected.externals);
  EXPECT_EQ(found.generator_state, expected.generator_state);
}

bool same_bits(const FakeOutcome& a, const FakeOutcome& b) {
  return a.outputs == b.outputs && a.externals == b.externals &&
         a.generator_state == b.generator_state;
}

TEST(FakeBackend, ExecutesTheSmallStep) {
  const Graph graph = parse_graph(testing::kSmallStepGraph);
  const Schedule schedule = parse_schedule(testing::kSmallStepSchedule, graph);
  const FakeOutcome outcome = execute_fake(graph, schedule);
  expect_same_bits(outcome, run_plain(graph));
  EXPECT_EQ(outcome.outputs.size(), 2u);
  EXPECT_EQ(outcome.externals.size(), 3u);
  EXPECT_EQ(outcome.peak_bytes, testing::kSmallStepPeakBytes);
  EXPECT_EQ(outcome.left_bytes, 9 + 1 + 8);  // externals, l and ga
}

TEST(FakeBackend, ExecutesTheMovingStep) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const FakeOutcome outcome =
      execute_fake(graph, parse_schedule(testing::kMovingStepSchedule, graph));
  expect_same_bits(outcome, run_plain(graph));
  EXPECT_EQ(outcome.peak_bytes, testing::kMovingStepPeakBytes);
  EXPECT_EQ(outcome.left_bytes, 4 + 1 + 10);  // x, l and g2
}

// b2 cannot read packed bytes, and b5 can read nothing else from r~.
TEST(FakeBackend, PackedBytesMeanNothingToOthers) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const std::string text = replaced(testing::kMovingStepSchedule, "b2 reads=g3,m#1", "b2 reads=g3,m~");
  const std::string later = replaced(replaced(text, "free m~\n", ""), "free g3\n", "free g3\nfree m~\n");
  EXPECT_FALSE(same_bits(execute_fake(graph, parse_schedule(later, graph)), run_plain(graph)));
}

// relu updates r while it is written.
TEST(FakeBackend, WhatChangesWhileItIsWrittenIsGarbage) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  std::string text = replaced(testing::kMovingStepSchedule, "run relu", "offload r reads=r creates=r^\nrun relu");
  text = replaced(text, "pack r reads=r creates=r~\n", "");
  text = replaced(text, "run b5 reads=l,r~ creates=g5\nfree r~\n",
                  "prefetch r reads=r^ creates=r#1\nfree r^\nrun b5 reads=l,r#1 creates=g5\nfree r#1\n");
  EXPECT_FALSE(same_bits(execute_fake(graph, parse_schedule(text, graph)), run_plain(graph)));
  const std::string after = replaced(replaced(text, "offload r reads=r creates=r^\n", ""), "run f5",
                                     "offload r reads=r creates=r^\nrun f5");
  expect_same_bits(execute_fake(graph, parse_schedule(after, graph)), run_plain(graph));
}

TEST(FakeBackend, RefusesArraysThatAreNotThere) {
  const Graph graph = parse_graph(testing::kSmallStepGraph);
  const Schedule schedule = parse_schedule("remat-schedule 1\nrun relu updates=a\n", graph);
  EXPECT_THROW(execute_fake(graph, schedule), std::logic_error);
}

TEST(FakeBackendProperty, SameBitsAndThePredictedPeak) {
  const uint64_t graphs = testing::property_graphs(4000);
  uint64_t recomputes = 0;
  uint64_t reuses = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const FakeOutcome plain = run_plain(graph);
    for (const int changes : {0, 30}) {
      const Schedule schedule = rewrite(graph, testing::random_order(generator, graph, changes),
                                        {.reuse = testing::chance(generator, 0.8)});
      const FakeOutcome outcome = execute_fake(graph, schedule);
      expect_same_bits(outcome, plain);
      EXPECT_EQ(outcome.peak_bytes, simulate(graph, schedule).peak_bytes);
      EXPECT_EQ(outcome.peak_bytes, simulate_peak(graph, schedule).bytes);
      EXPECT_FALSE(verify(graph, schedule, outcome.peak_bytes).has_value());
      ASSERT_FALSE(HasFailure()) << "seed " << seed << "\n"
                                 << print_graph(graph) << print_schedule(schedule, graph);
      for (const ScheduleStep& step : schedule.steps) recomputes += step.kind == StepKind::recompute;
      for (const Instance& instance : schedule.instances) {
        reuses += instance.in_place_of != kNoInstance;
      }
    }
  }
  EXPECT_GT(recomputes, 5 * graphs);
  EXPECT_GT(reuses, graphs);
}

// Four ways to the same bytes, and two to the same time.
TEST(FakeBackendProperty, SameBitsAndThePredictedPeakWithMoves) {
  const uint64_t graphs = testing::property_graphs(12'000);
  std::map<StepKind, uint64_t> steps;
  uint64_t readers = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    const std::vector<OpId> order = testing::with_random_moves(
        generator, graph, testing::random_order(generator, graph, 15), 40);
    const Schedule schedule = rewrite(graph, order);
    const FakeOutcome outcome = execute_fake(graph, schedule);
    expect_same_bits(outcome, run_plain(graph));
    const Peak peak = simulate_peak(graph, schedule);
    EXPECT_EQ(outcome.peak_bytes, peak.bytes);
    EXPECT_FALSE(verify(graph, schedule, outcome.peak_bytes).has_value());
    const OrderCost::Result cost = OrderCost(graph).evaluate(order, 0);
    EXPECT_EQ(cost.peak_bytes, peak.bytes);
    EXPECT_EQ(cost.time_ns, peak.time_ns);
    EXPECT_EQ(rewrite(graph, order_of(graph, schedule)), schedule);
    EXPECT_EQ(parse_schedule(print_schedule(schedule, graph), graph), schedule);
    EXPECT_EQ(parse_graph(print_graph(graph)), graph);
    ASSERT_FALSE(HasFailure()) << "seed " << seed << "\n"
                               << print_graph(graph) << print_schedule(schedule, graph);
    for (const ScheduleStep& step : schedule.steps) {
      ++steps[step.kind];
      readers += step.kind == StepKind::run && graph.is_move(step.op);
    }
  }
  for (const StepKind kind :
       {StepKind::pack, StepKind::unpack, StepKind::offload, StepKind::prefetch}) {
    EXPECT_GT(steps[kind], graphs / 2) << name(kind);
  }
  EXPECT_GT(readers, graphs / 10);
}

// The two checkers agree the other way round too: what verify calls wrong_version really computes
// other bits, or changes them on the way to a dead end that nothing shows.
TEST(FakeBackendProperty, SabotagedBindingsComputeOtherBits) {
  const uint64_t graphs = testing::property_graphs(4000);
  const std::set<std::string_view> changing = {"bind_other_version", "effect_twice", "draw_twice"};
  uint64_t tried = 0;
  uint64_t differ = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const Schedule schedule = rewrite(graph, testing::random_order(generator, graph, 30));
    for (const testing::Sabotage& sabotage : testing::sabotages()) {
      if (!changing.contains(sabotage.name)) continue;
      const auto wrong = sabotage.apply(graph, schedule, generator);
      if (!wrong) continue;
      const FakeOutcome outcome = execute_fake(graph, *wrong);
      const bool different = !same_bits(outcome, run_plain(graph));
      // A second effect or a second draw always shows in the externals or in the generator.
      if (sabotage.name != "bind_other_version") {
        ASSERT_TRUE(different) << sabotage.name << ", seed " << seed;
      }
      ++tried;
      differ += different;
    }
  }
  EXPECT_GT(tried, graphs / 2);
  EXPECT_GT(differ, tried / 2);
}

}  // namespace fake_backend_test
}  // namespace remat
