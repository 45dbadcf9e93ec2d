// SPDX-License-Identifier: Apache-2.0

// verify on schedules that pack and offload.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"
#include "tests/testing/replaced.h"
#include "tests/testing/sabotage.h"

namespace remat {
namespace verify_moves_test {

using testing::kMovingStepGraph;
using testing::kMovingStepPeakBytes;
using testing::kMovingStepSchedule;
using testing::replaced;
using Kind = ViolationKind;

// The right schedule of the moving step with one or two passages replaced.
struct Mistake {
  Kind kind;
  std::string from, to;
  std::string op;      // whom the violation names
  std::string phrase;  // part of its reason
  std::string from2 = "\n", to2 = "\n";
};

TEST(VerifyMoves, AcceptsTheMovingStepAtItsPeakAndNotBelow) {
  const Graph graph = parse_graph(kMovingStepGraph);
  const Schedule schedule = parse_schedule(kMovingStepSchedule, graph);
  EXPECT_EQ(verify(graph, schedule, kMovingStepPeakBytes), std::nullopt);
  const auto violation = verify(graph, schedule, kMovingStepPeakBytes - 1);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->kind, Kind::over_budget);
  EXPECT_EQ(violation->step, 2u);
  EXPECT_EQ(violation->op, "m");
  EXPECT_EQ(violation->reason,
            "168 bytes are resident and 2 are added; expected at most 169 together");
}

TEST(VerifyMoves, NamesEveryMistake) {
  const std::vector<Mistake> mistakes = {
      {Kind::wrong_operand, "pack m reads=m ", "pack m reads=a ", "m", "a; expected a copy of m"},
      {Kind::wrong_operand, "pack m reads=m creates=m~", "pack m reads=m creates=m^", "m",
       "m^; expected a copy of m~"},
      {Kind::wrong_operand, "unpack m reads=m~ ", "unpack m reads=m ", "m", "m; expected a copy of m~"},
      {Kind::wrong_operand, "prefetch a reads=a^ ", "prefetch a reads=m~ ", "a",
       "m~; expected a copy of a^"},
      // b2 is no reader of m's packed form.
      {Kind::wrong_operand, "b2 reads=g3,m#1", "b2 reads=g3,m~", "b2", "m~; expected a copy of m"},
      {Kind::wrong_operand, "b5 reads=l,r~", "b5 reads=r~,r~", "b5", "r~; expected a copy of l"},
      {Kind::read_missing, "pack m reads=m creates=m~\nfree m\n", "free m\npack m reads=m creates=m~\n",
       "m", "it needs m, which was freed"},
      {Kind::read_missing, "offload a reads=a creates=a^\n", "", "a", "a^, which was not created yet"},
      {Kind::read_missing, "b3 reads=g5,a#1", "b3 reads=g5,a", "b3", "it needs a, which was freed"},
      {Kind::read_missing, "unpack m reads=m~ creates=m#1\nfree m~\n",
       "free m~\nunpack m reads=m~ creates=m#1\n", "m", "m~, which was freed"},
      {Kind::read_missing, "run b5 reads=l,r~", "run b5 reads=l,r~#1", "b5", "r~#1, which was not created"},
      {Kind::created_twice, "prefetch a reads=a^ creates=a#1", "prefetch a reads=a^ creates=a", "a",
       "creates a, which was created before"},
      {Kind::created_twice, "pack r reads=r creates=r~\n",
       "pack r reads=r creates=r~\npack r reads=r creates=r~\n", "r", "creates r~, which was created"},
      {Kind::bad_free, "free m~\n", "free m~\nfree m~\n", "m~", "freed, but it was freed"},
      {Kind::bad_free, "free a^\n", "free a^\nfree a^\n", "a^", "freed, but it was freed"},
      {Kind::bad_free, "run f1", "free a^\nrun f1", "a^", "was not created yet"},
      {Kind::missing_free, "free a^\n", "", "a^", "survives the step and is no output"},
      {Kind::missing_free, "free r~\n", "", "r~", "survives the step and is no output"},
      {Kind::write_disturbed, "run f4", "offload a reads=a creates=a^#1\nrun f4", "a",
       "a is offloaded twice; expected a free of it after the first"},
      // r is written while relu updates it.
      {Kind::write_disturbed, "run relu", "offload r reads=r creates=r^\nrun relu", "relu",
       "it updates r, which is being offloaded; expected a free of it first"},
      {Kind::bad_reuse, "creates=g3 reuse=g3<g5\nfree a#1\n", "creates=g3 reuse=g3<a#1\nfree g5\n", "b3",
       "g3 takes the place of a#1, which is being offloaded", "run b3",
       "offload a reads=a#1 creates=a^#1\nrun b3"},
      // The rule of r's packed form was made for what relu leaves.
      {Kind::wrong_version, "run relu", "pack r reads=r creates=r~#1\nrun relu", "r",
       "r holds another value; expected that of r at version 1"},
      // The copy of r that is packed lacks relu.
      {Kind::wrong_version, "pack r reads=r creates=r~",
       "recompute f3 reads=a creates=r#1\npack r reads=r#1 creates=r~\nfree r#1", "r",
       "r#1 holds another value"},
      // A copy of r without relu goes away and comes back.
      {Kind::wrong_version, "b5 reads=l,r~", "b5 reads=l,r#2", "b5",
       "r#2 holds another value; expected that of r at version 1", "run relu",
       "recompute f3 reads=a creates=r#1\noffload r reads=r#1 creates=r^\nfree r#1\n"
       "prefetch r reads=r^ creates=r#2\nfree r^\nrun relu"},
      {Kind::run_twice, "run b5 reads=l,r~ creates=g5\n",
       "run b5 reads=l,r~ creates=g5\nrun b5 reads=l,r~ creates=g5#1\n", "b5", "has run already"},
      {Kind::recompute_first, "run b5", "recompute b5", "b5", "before it has run"},
  };
  const Graph graph = parse_graph(kMovingStepGraph);
  for (const Mistake& mistake : mistakes) {
    const std::string text = replaced(replaced(kMovingStepSchedule, mistake.from, mistake.to),
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

// The rule was made for what `scale` leaves: of an earlier version not all bits may come back. This was
// accepted, since what came back was what had been packed.
TEST(VerifyMoves, OnlyWhatARuleWasMadeForIsPacked) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op draw forward kind=k time_ns=1 reads=x creates=mask:64
op look forward kind=k time_ns=1 reads=mask creates=sum:4
op scale forward kind=k time_ns=1 updates=mask
op use forward kind=k time_ns=1 reads=mask,sum creates=y:4
output y
packed mask rule=two_values bytes=2 pack_ns=1 unpack_ns=1
)");
  const std::string head = "remat-schedule 1\nrun draw reads=x creates=mask\n";
  const std::string tail =
      "run look reads=mask#1 creates=sum\nrun scale updates=mask#1\n"
      "run use reads=mask#1,sum creates=y\nfree mask#1\nfree sum\n";
  const std::string packing =
      "pack mask reads=mask creates=mask~\nfree mask\nunpack mask reads=mask~ creates=mask#1\nfree mask~\n";
  const auto violation = verify(graph, parse_schedule(head + packing + tail, graph), kNoBudget);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->kind, Kind::wrong_version);
  EXPECT_EQ(violation->step, 1u);
  EXPECT_EQ(violation->reason, "mask holds another value; expected that of mask at version 1");
}

// What is packed and what is read packed may be made again, as often as one likes.
TEST(VerifyMoves, AcceptsMovesThatAreRepeated) {
  const Graph graph = parse_graph(kMovingStepGraph);
  const std::string text = replaced(
      replaced(kMovingStepSchedule, "free r~\n",
               "recompute b5 reads=l,r~ creates=g5#1\nfree g5#1\nfree r~\n"),
      "free a^\n", "prefetch a reads=a^ creates=a#2\nfree a#2\nfree a^\n");
  EXPECT_EQ(verify(graph, parse_schedule(text, graph), kNoBudget), std::nullopt);
}

// It may be read while it is written, and come back before it is freed.
TEST(VerifyMoves, AcceptsReadsOfWhatIsWritten) {
  const Graph graph = parse_graph(kMovingStepGraph);
  std::string text = replaced(kMovingStepSchedule, "offload a reads=a creates=a^\n", "");
  text = replaced(text, "run f3 reads=a", "offload a reads=a creates=a^\nrun f3 reads=a");
  text = replaced(text, "free a\n", "prefetch a reads=a^ creates=a#1\nfree a\n");
  text = replaced(text, "free r~\nprefetch a reads=a^ creates=a#1\n", "free r~\n");
  EXPECT_EQ(verify(graph, parse_schedule(text, graph), kNoBudget), std::nullopt);
}

struct Moved {
  Graph graph;
  Schedule schedule;
};

Moved random_moved(std::mt19937_64& generator) {
  Graph graph = testing::random_graph(generator);
  testing::add_random_moves(generator, graph);
  const std::vector<OpId> order = testing::with_random_moves(
      generator, graph, testing::random_order(generator, graph, 15), 40);
  Schedule schedule = rewrite(graph, order);
  return {std::move(graph), std::move(schedule)};
}

TEST(VerifyMovesProperty, AcceptsRightSchedulesAtTheirPeakAndNotBelow) {
  const uint64_t graphs = testing::property_graphs(2'000);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const auto [graph, schedule] = random_moved(generator);
    const int64_t peak = simulate_peak(graph, schedule).bytes;
    ASSERT_EQ(verify(graph, schedule, peak), std::nullopt) << "seed " << seed;
    const auto below = verify(graph, schedule, peak - 1);
    ASSERT_TRUE(below.has_value()) << "seed " << seed;
    ASSERT_EQ(name(below->kind), name(Kind::over_budget)) << "seed " << seed;
  }
}

// Those of moves, and all the others on schedules that have moves.
TEST(VerifyMovesProperty, CatchesEverySabotage) {
  const uint64_t graphs = testing::property_graphs(2'000);
  std::map<std::string_view, uint64_t> applied;
  std::vector<testing::Sabotage> all(testing::move_sabotages().begin(), testing::move_sabotages().end());
  all.insert(all.end(), testing::sabotages().begin(), testing::sabotages().end());
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const auto [graph, schedule] = random_moved(generator);
    for (const testing::Sabotage& sabotage : all) {
      const auto wrong = sabotage.apply(graph, schedule, generator);
      if (!wrong) continue;
      ++applied[sabotage.name];
      const auto violation = verify(graph, *wrong, kNoBudget);
      ASSERT_TRUE(violation.has_value()) << sabotage.name << ", seed " << seed << "\n"
                                         << print_graph(graph) << print_schedule(*wrong, graph);
      ASSERT_NE(std::find(sabotage.kinds.begin(), sabotage.kinds.end(), violation->kind),
                sabotage.kinds.end())
          << sabotage.name << ", seed " << seed << ": " << name(violation->kind) << ": "
          << violation->reason << "\n"
          << print_graph(graph) << print_schedule(*wrong, graph);
    }
  }
  // A sabotage that is hardly ever tried proves nothing.
  for (const testing::Sabotage& sabotage : all) {
    EXPECT_GE(applied[sabotage.name], graphs / 20) << sabotage.name;
    RecordProperty(std::string(sabotage.name), std::to_string(applied[sabotage.name]));
  }
  EXPECT_GE(testing::move_sabotages().size(), 15u);
}

// What changes bits, changes them on the fake backend too, unless it is on the way to a dead end, as many
// of the random packs are.
TEST(VerifyMovesProperty, SabotagedMovesComputeOtherBits) {
  const uint64_t graphs = testing::property_graphs(2'000);
  const std::set<std::string_view> changing = {"packed_for_value",     "op_reads_packed",
                                               "reader_gets_value",    "pack_old_version",
                                               "update_while_written", "take_place_while_written"};
  std::map<std::string_view, uint64_t> tried, differ;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const auto [graph, schedule] = random_moved(generator);
    const testing::FakeOutcome plain = testing::run_plain(graph);
    for (const testing::Sabotage& sabotage : testing::move_sabotages()) {
      if (!changing.contains(sabotage.name)) continue;
      const auto wrong = sabotage.apply(graph, schedule, generator);
      if (!wrong) continue;
      ++tried[sabotage.name];
      try {
        const testing::FakeOutcome outcome = testing::execute_fake(graph, *wrong);
        differ[sabotage.name] +=
            outcome.outputs != plain.outputs || outcome.externals != plain.externals;
      } catch (const std::logic_error&) {  // the form, or the copy, is not there
        ++differ[sabotage.name];
      }
    }
  }
  for (const std::string_view name : changing) {
    EXPECT_GT(tried[name], graphs / 40) << name;
    EXPECT_GT(differ[name], tried[name] / 6) << name << ": " << differ[name] << " of " << tried[name];
  }
}

TEST(VerifyMovesProperty, RandomGarbageNeverCrashes) {
  const uint64_t graphs = testing::property_graphs(1'000);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    auto [graph, schedule] = random_moved(generator);
    const auto any_of = [&](auto& items) -> auto& { return items[generator() % items.size()]; };
    for (int change = 0; change < 12; ++change) {
      const ScheduleStep& other = any_of(schedule.steps);
      ScheduleStep& step = any_of(schedule.steps);
      switch (testing::draw(generator, 0, 5)) {
        case 0: step.kind = static_cast<StepKind>(testing::draw(generator, 0, kStepKindCount)); break;
        case 1: step.op = static_cast<OpId>(testing::draw(generator, -1, static_cast<int64_t>(graph.op_count()))); break;
        case 2: std::tie(step.op, step.kind) = std::pair(other.op, other.kind); break;
        case 3: any_of(schedule.operands) = any_of(schedule.operands); break;
        case 4:
          any_of(schedule.instances).storage =
              static_cast<StorageId>(testing::draw(generator, -1, static_cast<int64_t>(graph.storage_count())));
          break;
        case 5: step.first_operand = other.first_operand; break;
      }
      verify(graph, schedule, kNoBudget);
    }
  }
}

}  // namespace verify_moves_test
}  // namespace remat
