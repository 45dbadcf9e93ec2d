// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "remat/core/graph_builder.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_order.h"
#include "tests/testing/replaced.h"
#include "tests/testing/sabotage.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace verify_test {

using testing::kSmallStepGraph;
using testing::kSmallStepPeakBytes;
using testing::kSmallStepSchedule;
using testing::replaced;
using Kind = ViolationKind;

Graph small_step() { return parse_graph(kSmallStepGraph); }

// The right schedule of the small step with one or two passages replaced.
struct Mistake {
  Kind kind;
  std::string from, to;
  std::string op;      // whom the violation names
  std::string phrase;  // part of its reason
  std::string from2 = "\n", to2 = "\n";
};

TEST(Verify, AcceptsTheSmallStepAtItsPeakAndNotBelow) {
  const Graph graph = small_step();
  const Schedule schedule = parse_schedule(kSmallStepSchedule, graph);
  EXPECT_EQ(verify(graph, schedule, kSmallStepPeakBytes), std::nullopt);
  const auto violation = verify(graph, schedule, kSmallStepPeakBytes - 1);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->kind, Kind::over_budget);
  EXPECT_EQ(violation->step, 14u);
  EXPECT_EQ(violation->op, "conv");
  EXPECT_EQ(violation->reason,
            "19 bytes are resident and 10 are added; expected at most 28 together");
}

TEST(Verify, NamesEveryMistake) {
  const std::vector<Mistake> mistakes = {
      {Kind::wrong_operand, "norm reads=a ", "norm reads=w ", "norm", "w; expected a copy of a"},
      {Kind::wrong_operand, "relu updates=a\n", "relu updates=x\n", "relu", "expected a copy of a"},
      {Kind::wrong_operand, "creates=b,mean", "creates=mean,b", "norm", "expected a copy of b"},
      {Kind::read_missing, "run relu", "free a\nrun relu", "relu", "a, which was freed"},
      {Kind::read_missing, "gb,a#1,mean", "gb,a#2,mean", "d_norm",
       "a#2, which was not created yet"},
      {Kind::read_missing, "run noise", "recompute drop reads=b creates=c#1,mask#1\nrun noise",
       "drop", "b, which lost its place"},
      {Kind::wrong_version, "recompute relu updates=a#1\n", "", "d_norm",
       "a#1 holds another value; expected that of a at version 1"},
      {Kind::wrong_version, "run norm", "recompute relu updates=a\nrun norm", "relu",
       "expected that of a at version 0"},
      {Kind::wrong_version, "updates=w\n", "updates=w\nrecompute conv reads=x,w creates=a#2\n",
       "conv", "w holds another value; expected that of w at version 0"},
      {Kind::created_twice, "recompute conv reads=x,w creates=a#1",
       "recompute conv reads=x,w creates=a", "conv", "creates a, which was created before"},
      {Kind::created_twice, "run relu", "recompute conv reads=x,w creates=a\nrun relu", "conv",
       "expected a fresh copy"},
      {Kind::run_twice, "recompute conv", "run conv", "conv", "has run already"},
      {Kind::recompute_first, "run noise", "recompute noise", "noise", "before it has run"},
      {Kind::once_recomputed, "run track", "recompute log reads=l\nrun track", "log",
       "marked once"},
      {Kind::once_recomputed, "updates=w\n", "updates=w\nrecompute step reads=ga updates=w\n",
       "step", "updates the external w"},
      {Kind::order_changed, "run drop", "run noise reads=x creates=n\nrun drop", "noise",
       "random op number 1; expected drop", "mask reuse=c<b\nrun noise reads=x creates=n\n",
       "mask reuse=c<b\n"},
      {Kind::order_changed, "run log reads=l\n", "", "reduce", "once op number 1; expected log",
       "run step", "run log reads=l\nrun step"},
      {Kind::order_changed, "run norm", "run track reads=x\nrun norm", "track",
       "op with effects number 1; expected norm", "run log reads=l\nrun track reads=x\n",
       "run log reads=l\n"},
      {Kind::bad_reuse, "creates=n\n", "creates=n reuse=n<x\n", "noise", "x, an external"},
      {Kind::bad_reuse, "creates=gb\n", "creates=gb reuse=gb<l\n", "d_drop",
       "the last copy of an output"},
      {Kind::bad_reuse, "creates=gb\n", "creates=gb reuse=gb<mask\n", "d_drop", "does not list"},
      {Kind::bad_reuse, "reuse=c<b", "reuse=c<b,mask<b", "drop", "both take the place of b"},
      {Kind::bad_free, "free a\n", "free x\n", "x", "an external is freed"},
      {Kind::bad_free, "free a\n", "free a\nfree a\n", "a",
       "was freed; expected it to be resident"},
      {Kind::bad_free, "free a\n", "free n\n", "n", "was not created yet"},
      {Kind::bad_free, "run noise", "free b\nrun noise", "b", "lost its place to a result"},
      {Kind::bad_free, "updates=w\n", "updates=w\nfree l\n", "l", "the last copy of an output"},
      {Kind::missing_free, "free mean\n", "", "mean", "survives the step and is no output"},
      {Kind::missing_free, "free c\n", "recompute loss reads=c,n creates=l#1\nfree c\n", "l",
       "one of several copies"},
      {Kind::op_missing, "run step reads=ga updates=w\n", "", "step", "never runs"},
      // The copy that survives lacks the reduction.
      {Kind::output_wrong, "creates=ga reuse=ga<gb\n",
       "creates=ga\nrecompute d_norm reads=gb,a#1,mean creates=ga#1\nfree gb\n", "ga",
       "expected version 1", "updates=w\n", "updates=w\nfree ga\n"},
      {Kind::external_wrong, "run warm updates=stat\n", "", "norm",
       "stat with another value; expected version 1", "free a\n",
       "free a\nrun warm updates=stat\n"},
  };
  const Graph graph = small_step();
  for (const Mistake& mistake : mistakes) {
    const std::string text = replaced(replaced(kSmallStepSchedule, mistake.from, mistake.to),
                                      mistake.from2, mistake.to2);
    const auto violation = verify(graph, parse_schedule(text, graph), kNoBudget);
    ASSERT_TRUE(violation.has_value()) << text;
    EXPECT_EQ(name(violation->kind), name(mistake.kind)) << violation->reason << "\n" << text;
    EXPECT_EQ(violation->op, mistake.op) << violation->reason << "\n" << text;
    EXPECT_NE(violation->reason.find(mistake.phrase), std::string::npos)
        << violation->reason << "\n"
        << text;
  }
}

TEST(Verify, NamesTheStep) {
  const Graph graph = small_step();
  const auto step_of = [&](std::string_view from, std::string_view to) {
    return verify(graph, parse_schedule(replaced(kSmallStepSchedule, from, to), graph), kNoBudget)
        ->step;
  };
  EXPECT_EQ(step_of("run relu updates=a", "run relu updates=x"), 2u);
  EXPECT_EQ(step_of("free mean\n", ""), 20u);  // at the end: 20 steps are left
}

TEST(Verify, AcceptsRecomputesThatLeaveTheWorldAlone) {
  const Graph graph = small_step();
  // Effects and generator are as after the runs although norm, drop and noise stand twice.
  const std::string text = replaced(replaced(kSmallStepSchedule, "free a\n",
                                             "recompute norm reads=a creates=b#1,mean#1\n"
                                             "free mean#1\nfree a\n"),
                                    "run loss",
                                    "recompute noise reads=x creates=n#1\nfree n#1\n"
                                    "recompute drop reads=b#1 creates=c#1,mask#1 reuse=mask#1<b#1\n"
                                    "free c#1\nfree mask#1\nrun loss");
  EXPECT_EQ(verify(graph, parse_schedule(text, graph), kNoBudget), std::nullopt);
}

TEST(Verify, AcceptsThatAnEarlierCopyOfAnOutputIsFreed) {
  const Graph graph = small_step();
  const std::string text = replaced(kSmallStepSchedule, "free c\n",
                                    "free l\nrecompute loss reads=c,n creates=l#1\nfree c\n");
  std::string renamed = replaced(text, "run log reads=l\n", "run log reads=l#1\n");
  renamed = replaced(renamed, "run d_drop reads=l,", "run d_drop reads=l#1,");
  EXPECT_EQ(verify(graph, parse_schedule(renamed, graph), kNoBudget), std::nullopt);
}

TEST(Verify, CountsExternalsWhereThereAreNoSteps) {
  const Graph graph = parse_graph("remat-graph 1\nexternal x 4 input\noutput x\n");
  const Schedule schedule = parse_schedule("remat-schedule 1\n", graph);
  EXPECT_EQ(verify(graph, schedule, 4), std::nullopt);
  EXPECT_EQ(verify(graph, schedule, 3)->kind, Kind::over_budget);
  EXPECT_EQ(verify(graph, schedule, -1)->kind, Kind::over_budget);
  EXPECT_EQ(verify(parse_graph("remat-graph 1\n"), {}, 0), std::nullopt);
}

// A thousand and more copies of a storage of 2^52 bytes do not fit into 64 bits.
TEST(Verify, SumsThatOverflowAreOverBudget) {
  const Graph graph = parse_graph(
      "remat-graph 1\nop a forward kind=k time_ns=1 creates=s:4503599627370496\noutput s\n");
  std::string text = "remat-schedule 1\nrun a creates=s\n";
  for (int i = 1; i < 3000; ++i) text += "recompute a creates=s#" + std::to_string(i) + "\n";
  EXPECT_EQ(verify(graph, parse_schedule(text, graph), kNoBudget)->kind, Kind::over_budget);
}

TEST(Verify, EveryKindHasItsName) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kViolationKindCount; ++i) names.insert(name(static_cast<Kind>(i)));
  EXPECT_EQ(names.size(), kViolationKindCount);
  EXPECT_EQ(name(Kind::malformed), "malformed");
  EXPECT_EQ(name(Kind::over_budget), "over_budget");
}

TEST(Verify, PlacesThatTheStepDoesNotRead) {
  const Graph graph = small_step();
  Schedule schedule = parse_schedule(kSmallStepSchedule, graph);
  const auto result = std::find_if(schedule.instances.begin(), schedule.instances.end(),
                                   [](const Instance& i) { return i.in_place_of != kNoInstance; });
  const StorageId source = schedule.instances[index(result->in_place_of)].storage;
  result->in_place_of = static_cast<InstanceId>(schedule.instances.size());
  schedule.instances.push_back({source, 1, kNoInstance});
  const auto violation = verify(graph, schedule, kNoBudget);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->kind, Kind::bad_reuse);
  EXPECT_EQ(violation->reason.find("c takes the place of b#1, which this step does not read"), 0u);
}

TEST(Verify, TwoInstancesOfOneName) {
  const Graph graph = small_step();
  Schedule schedule = parse_schedule(kSmallStepSchedule, graph);
  for (Instance& instance : schedule.instances) instance.copy = 0;
  const auto violation = verify(graph, schedule, kNoBudget);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->kind, Kind::created_twice);
  EXPECT_NE(violation->reason.find("creates a, which was created before"), std::string::npos);
}

TEST(VerifyProperty, AcceptsRightSchedulesAtTheirPeakAndNotBelow) {
  const uint64_t graphs = testing::property_graphs(2000);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    for (const int changes : {0, 30}) {
      const Schedule schedule = rewrite(graph, testing::random_order(generator, graph, changes));
      const int64_t peak = simulate_peak(graph, schedule).bytes;
      ASSERT_EQ(verify(graph, schedule, peak), std::nullopt) << "seed " << seed;
      const auto below = verify(graph, schedule, peak - 1);
      ASSERT_TRUE(below.has_value()) << "seed " << seed;
      ASSERT_EQ(name(below->kind), name(Kind::over_budget)) << "seed " << seed;
    }
  }
}

TEST(VerifyProperty, CatchesEverySabotage) {
  const uint64_t graphs = testing::property_graphs(2000);
  std::map<std::string_view, uint64_t> applied;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const Schedule schedule = rewrite(graph, testing::random_order(generator, graph, 30));
    for (const testing::Sabotage& sabotage : testing::sabotages()) {
      const auto wrong = sabotage.apply(graph, schedule, generator);
      if (!wrong) continue;
      ++applied[sabotage.name];
      const auto violation = verify(graph, *wrong, kNoBudget);
      ASSERT_TRUE(violation.has_value()) << sabotage.name << ", seed " << seed << "\n"
                                         << print_graph(graph) << print_schedule(*wrong, graph);
      ASSERT_NE(std::find(sabotage.kinds.begin(), sabotage.kinds.end(), violation->kind),
                sabotage.kinds.end())
          << sabotage.name << ", seed " << seed << ": " << name(violation->kind) << ": "
          << violation->reason;
    }
  }
  // A sabotage that is hardly ever tried proves nothing.
  for (const testing::Sabotage& sabotage : testing::sabotages()) {
    EXPECT_GE(applied[sabotage.name], graphs / 20) << sabotage.name;
    RecordProperty(std::string(sabotage.name), std::to_string(applied[sabotage.name]));
  }
}

TEST(VerifyProperty, RandomGarbageNeverCrashes) {
  const uint64_t graphs = testing::property_graphs(1000);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    Schedule schedule = rewrite(graph, testing::random_order(generator, graph, 10));
    const auto any_number = [&] {
      return static_cast<int32_t>(testing::chance(generator, 0.5)
                                      ? testing::draw(generator, -2, 40)
                                      : static_cast<int64_t>(generator()));
    };
    const auto any_of = [&](auto& items) -> auto& { return items[generator() % items.size()]; };
    for (int change = 0; change < 8; ++change) {
      switch (testing::draw(generator, 0, 7)) {
        case 0: any_of(schedule.steps).kind = static_cast<StepKind>(any_number()); break;
        case 1: any_of(schedule.steps).op = static_cast<OpId>(any_number()); break;
        case 2: any_of(schedule.steps).first_operand = any_number(); break;
        case 3: any_of(schedule.steps).instance = static_cast<InstanceId>(any_number()); break;
        case 4: any_of(schedule.operands) = static_cast<InstanceId>(any_number()); break;
        case 5: any_of(schedule.instances).storage = static_cast<StorageId>(any_number()); break;
        case 6: any_of(schedule.instances).copy = any_number(); break;
        case 7:
          any_of(schedule.instances).in_place_of = static_cast<InstanceId>(any_number());
          break;
      }
      verify(graph, schedule, kNoBudget);
    }
  }
}

// A chain of 50,000 ops of which most are run ten times: about a million steps.
TEST(Verify, CopesWithAMillionSteps) {
  constexpr int kOps = 50'000;
  GraphBuilder builder;
  builder.external("x", 4, Role::input);
  for (int i = 0; i < kOps; ++i) {
    builder.op({.name = "op" + std::to_string(i),
                .kind = "k",
                .reads = {i == 0 ? std::string("x") : "s" + std::to_string(i - 1)},
                .creates = {{"s" + std::to_string(i), 8}}});
  }
  builder.output("s" + std::to_string(kOps - 1));
  const Graph graph = std::move(builder).build();
  std::vector<OpId> order;
  for (int i = 0; i < kOps; ++i) {
    for (int again = std::max(0, i - 9); again < i; ++again)
      order.push_back(static_cast<OpId>(again));
    order.push_back(static_cast<OpId>(i));
  }
  const Schedule schedule = rewrite(graph, order);
  ASSERT_GT(schedule.steps.size(), 900'000u);
  EXPECT_EQ(verify(graph, schedule, simulate_peak(graph, schedule).bytes), std::nullopt);
}

}  // namespace verify_test
}  // namespace remat
