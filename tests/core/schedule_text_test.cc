// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/core/verify.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace schedule_text_test {

using testing::kSmallStepGraph;
using testing::kSmallStepSchedule;

// What a bad text must say: the line it is on and a phrase of the message.
struct BadText {
  std::string text;
  int line;
  std::string phrase;
};

std::string error_of(std::string_view text, std::string_view graph = kSmallStepGraph) {
  try {
    parse_schedule(text, parse_graph(graph));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ScheduleText, PrintsWhatItParses) {
  const Graph graph = parse_graph(kSmallStepGraph);
  EXPECT_EQ(print_schedule(parse_schedule(kSmallStepSchedule, graph), graph), kSmallStepSchedule);
}

TEST(ScheduleText, PrintsTheMovesThatItParses) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const Schedule schedule = parse_schedule(testing::kMovingStepSchedule, graph);
  EXPECT_EQ(print_schedule(schedule, graph), testing::kMovingStepSchedule);
  // b5 reads packed bytes: it is another form of the op.
  const ScheduleStep& b5 = schedule.steps[13];
  EXPECT_EQ(b5.kind, StepKind::run);
  EXPECT_TRUE(graph.is_move(b5.op));
  EXPECT_EQ(graph.op(graph.original(b5.op)).name, "b5");
  EXPECT_FALSE(graph.is_move(schedule.steps[17].op));  // b3
}

TEST(ScheduleText, ParsesTheMovesThatItPrintsOnRandomGraphs) {
  const uint64_t graphs = testing::property_graphs(500);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    const Schedule schedule = rewrite(
        graph, testing::with_random_moves(generator, graph, testing::random_order(generator, graph, 10), 40));
    ASSERT_EQ(parse_schedule(print_schedule(schedule, graph), graph), schedule) << "seed " << seed;
  }
}

// An op that could read m packed or k packed, but not both: text can say it, verify refuses it.
TEST(ScheduleText, AnOpReadsOnePackedFormAtMost) {
  const Graph graph = parse_graph(R"(remat-graph 1
op f forward kind=k time_ns=1 creates=m:8,k:8
op b backward kind=k time_ns=1 reads=m,k creates=g:8
output g
packed m rule=r bytes=1 pack_ns=1 readers=b
packed k rule=r bytes=1 pack_ns=1 readers=b
)");
  const std::string text =
      "remat-schedule 1\nrun f creates=m,k\npack m reads=m creates=m~\npack k reads=k creates=k~\n"
      "run b reads=m~,k~ creates=g\n";
  const Schedule schedule = parse_schedule(text, graph);
  EXPECT_EQ(print_schedule(schedule, graph), text);
  const auto violation = verify(graph, schedule, 1000);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->kind, ViolationKind::wrong_operand);
  EXPECT_EQ(violation->reason, "an operand is k~; expected a copy of k");
}

TEST(ScheduleText, EveryMistakeInAMoveIsAnErrorWithItsLine) {
  const std::string head = "remat-schedule 1\nrun f1 reads=x creates=m\n";
  const std::vector<BadText> texts = {
      {head + "pack\n", 3, "pack without a storage; expected its name"},
      {head + "prefetch\n", 3, "prefetch without a storage"},
      {head + "pack a reads=a creates=a~\n", 3, "no pack of 'a'; expected a storage that the graph allows it for"},
      {head + "unpack r reads=r~ creates=r#1\n", 3, "no unpack of 'r'"},
      {head + "offload s reads=s creates=s^\n", 3, "no offload of 's'"},
      {head + "prefetch x reads=x creates=x\n", 3, "no prefetch of 'x'"},
      {head + "offload f1 reads=m creates=m^\n", 3, "no offload of 'f1'"},
      {head + "run m reads=m creates=m~\n", 3, "unknown op 'm'; expected an op of the graph"},
      {head + "read_packed b5 reads=l,r~ creates=g5\n", 3, "found 'read_packed'; expected a line that starts"},
      {head + "pack m reads=m\n", 3, "creates= has 0 instances; expected 1"},
      {head + "pack m reads=m,m creates=m~\n", 3, "reads= has 2 instances; expected 1"},
      {head + "pack m reads=m updates=m creates=m~\n", 3, "updates= has 1 instances; expected 0"},
      {head + "pack m reads=m creates=s~\n", 3, "unknown storage 's~'"},
      {head + "pack m reads=m creates=m~~\n", 3, "unknown storage 'm~~'"},
      {head + "free s^\n", 3, "unknown storage 's^'"},
      {head + "free m~#0\n", 3, "odd copy number"},
      {head + "free m#1~\n", 3, "expected a whole number"},
  };
  for (const BadText& bad : texts) {
    const std::string message = error_of(bad.text, testing::kMovingStepGraph);
    EXPECT_NE(message.find("[parse_schedule] line " + std::to_string(bad.line) + ": "), std::string::npos)
        << bad.text << "\ngave: " << message;
    EXPECT_NE(message.find(bad.phrase), std::string::npos) << bad.text << "\ngave: " << message;
  }
}

TEST(ScheduleText, ParsesWhatItPrintsOnRandomGraphs) {
  const uint64_t graphs = testing::property_graphs(2000);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const Schedule schedule = rewrite(graph, testing::random_order(generator, graph, 20));
    ASSERT_EQ(parse_schedule(print_schedule(schedule, graph), graph), schedule) << "seed " << seed;
  }
}

TEST(ScheduleText, ExternalsAreTheFirstInstances) {
  const Graph graph = parse_graph(kSmallStepGraph);
  const Schedule schedule = parse_schedule("remat-schedule 1\n", graph);
  ASSERT_EQ(schedule.instances.size(), graph.external_count);
  for (size_t i = 0; i < graph.external_count; ++i) {
    EXPECT_EQ(schedule.instances[i], (Instance{static_cast<StorageId>(i), 0, kNoInstance}));
  }
}

TEST(ScheduleText, CopiesAndPlacesAreReadFromTheirNames) {
  const Graph graph = parse_graph(kSmallStepGraph);
  const Schedule schedule = parse_schedule(
      "remat-schedule 1\nrecompute drop reads=b#2 creates=c#12,mask reuse=c#12<b#2\n", graph);
  ASSERT_EQ(schedule.steps.size(), 1u);
  EXPECT_EQ(schedule.steps[0].kind, StepKind::recompute);
  const InstanceId result = schedule.creates(graph, schedule.steps[0])[0];
  const Instance& instance = schedule.instances[index(result)];
  EXPECT_EQ(instance.copy, 12);
  EXPECT_EQ(instance.in_place_of, schedule.reads(graph, schedule.steps[0])[0]);
  EXPECT_EQ(instance_name(graph, instance), "c#12");
}

TEST(ScheduleText, SkipsCommentsBlankLinesAndCarriageReturns) {
  const Graph graph = parse_graph(kSmallStepGraph);
  const Schedule schedule = parse_schedule(
      "# a comment\r\n\n  \t\nremat-schedule 1\r\n  # another\nrun warm updates=stat\r\n\r\n",
      graph);
  EXPECT_EQ(schedule.steps.size(), 1u);
}

TEST(ScheduleText, EveryMistakeIsAnErrorWithItsLine) {
  const std::string head = "remat-schedule 1\nrun conv reads=x,w creates=a\n";
  const std::vector<BadText> texts = {
      {"", 1, "expected the header 'remat-schedule 1'"},
      {"# only a comment\n", 2, "expected the header"},
      {"remat-graph 1\n", 1, "found 'remat-graph 1'"},
      {"remat-schedule 1 extra\n", 1, "expected the header"},
      {std::string("\x7f"
                   "ELF\0\x01\x02",
                   7),
       1, "expected the header"},
      {head + "walk conv\n", 3, "run, recompute, free, pack, unpack, offload, prefetch or #"},
      {head + "pack a reads=a creates=a~\n", 3, "no pack of 'a'"},  // a graph without moves
      {head + "run\n", 3, "run without an op"},
      {head + "recompute\n", 3, "recompute without an op"},
      {head + "run convolution reads=x,w creates=a\n", 3, "unknown op 'convolution'"},
      {head + "free\n", 3, "two words"},
      {head + "free a a\n", 3, "two words"},
      {head + "free nothing\n", 3, "unknown storage 'nothing'"},
      {head + "free a#\n", 3, "expected a whole number"},
      {head + "free a#x\n", 3, "expected a whole number"},
      {head + "free a#-1\n", 3, "expected a whole number, zero or more"},
      {head + "free a#0\n", 3, "odd copy number"},
      {head + "free a#01\n", 3, "odd copy number"},
      {head + "free a#2147483648\n", 3, "odd copy number"},
      {head + "free a#9223372036854775808\n", 3, "does not fit into 64 bits"},
      {head + "free a#1#1\n", 3, "unknown storage 'a#1'"},
      {head + "free #1\n", 3, "unknown storage ''"},
      {head + "run relu\n", 3, "updates= has 0 instances; expected 1"},
      {head + "run relu updates=a,a\n", 3, "updates= has 2 instances; expected 1"},
      {head + "run relu reads=a updates=a\n", 3, "reads= has 1 instances; expected 0"},
      {head + "run norm reads=a creates=b\n", 3, "creates= has 1 instances; expected 2"},
      {head + "run relu updates\n", 3, "expected <key>=<instances>"},
      {head + "run relu updates=a=a\n", 3, "expected <key>=<instances>"},
      {head + "run relu updates=\n", 3, "empty element"},
      {head + "run conv reads=x,,w creates=a\n", 3, "empty element"},
      {head + "run relu writes=a\n", 3, "unknown key 'writes'"},
      {head + "run relu updates=a updates=a\n", 3, "key 'updates' is given twice"},
      {head + "run relu updates=unknown\n", 3, "unknown storage 'unknown'"},
      {head + "run drop reads=b creates=c,mask reuse=c\n", 3, "in reuse="},
      {head + "run drop reads=b creates=c,mask reuse=c<b<b\n", 3, "in reuse="},
      {head + "run drop reads=b creates=c,mask reuse=c<b,c<b\n", 3, "takes two places"},
      {head + "run drop reads=b creates=c,mask reuse=c#1<b\n", 3, "does not create"},
      {head + "run drop reads=b creates=c,mask reuse=c<b#1\n", 3, "does not read"},
      {head + "run drop reads=b creates=c,mask reuse=c<b\nrecompute drop reads=b creates=c,mask\n",
       4, "'c' is created again, in another place"},
  };
  for (const BadText& bad : texts) {
    const std::string message = error_of(bad.text);
    EXPECT_NE(message.find("[parse_schedule] line " + std::to_string(bad.line) + ": "),
              std::string::npos)
        << bad.text << "\ngave: " << message;
    EXPECT_NE(message.find(bad.phrase), std::string::npos) << bad.text << "\ngave: " << message;
  }
}

// Found by the fuzzer: the place was given to mask#1 although the step creates mask#2, and got lost
// when the schedule was printed.
TEST(ScheduleText, PlacesBelongToTheStepThatCreatesTheResult) {
  EXPECT_NE(error_of("remat-schedule 1\nrun drop reads=b creates=c,mask#2 reuse=mask#1<b\n")
                .find("line 2: reuse writes 'mask#1', which this step does not create"),
            std::string::npos);
}

TEST(ScheduleText, HugeLinesGiveShortErrors) {
  const std::string junk(10'000'000, 'z');
  EXPECT_LT(error_of(junk).size(), 300u);
  for (const std::string start :
       {"", "run ", "free ", "free a#", "run relu ", "run relu updates="}) {
    EXPECT_LT(error_of("remat-schedule 1\n" + start + junk).size(), 300u) << start;
  }
}

}  // namespace schedule_text_test
}  // namespace remat
