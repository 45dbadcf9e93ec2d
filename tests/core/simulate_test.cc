// SPDX-License-Identifier: Apache-2.0

// Timelines worked out by hand; the arithmetic stands beside the numbers.

#include "remat/core/simulate.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace simulate_test {

Simulation simulated(std::string_view graph_text, std::string_view schedule_text) {
  const Graph graph = parse_graph(graph_text);
  const Schedule schedule = parse_schedule(schedule_text, graph);
  const Simulation simulation = simulate(graph, schedule);
  const Peak peak = simulate_peak(graph, schedule);
  EXPECT_EQ(peak.bytes, simulation.peak_bytes);
  EXPECT_EQ(peak.step, simulation.peak_step);
  EXPECT_EQ(peak.time_ns, simulation.time_ns);
  return simulation;
}

std::vector<int64_t> bytes_of(const Simulation& simulation) {
  std::vector<int64_t> bytes;
  for (const Moment& moment : simulation.timeline) bytes.push_back(moment.bytes);
  return bytes;
}

int64_t of_role(const Moment& moment, Role role) {
  return moment.by_role[static_cast<size_t>(role)];
}

using Bytes = std::vector<int64_t>;

// The picture in simulate.h.
TEST(Simulate, ResultsAndWorkspaceJoinWhatIsThere) {
  const Simulation simulation = simulated(R"(remat-graph 1
external x 4 input
external w 4 param
op conv forward kind=k time_ns=100 reads=x,w creates=a1:8
op relu forward kind=k time_ns=10 reads=a1 creates=a2:8
op pool forward kind=k time_ns=1 workspace=1 reads=a2 creates=p:2
output p
)",
                                          R"(remat-schedule 1
run conv reads=x,w creates=a1
run relu reads=a1 creates=a2
free a1
run pool reads=a2 creates=p
free a2
)");
  EXPECT_EQ(bytes_of(simulation), (Bytes{
                                      4 + 4 + 8,   // x, w, a1
                                      16 + 8,      // a2
                                      24 - 8,      // a1 is gone
                                      16 + 2 + 1,  // p and the workspace
                                      18 - 8,      // x, w, p
                                  }));
  EXPECT_EQ(simulation.peak_bytes, 24);
  EXPECT_EQ(simulation.peak_step, 1u);
  EXPECT_EQ(simulation.time_ns, 111);
}

TEST(Simulate, BytesByRole) {
  const Simulation simulation = simulated(R"(remat-graph 1
external x 10 input
external w 20 param
external m 40 optimizer_state
external s 3 buffer
op f forward kind=k time_ns=1 reads=x,w creates=a:100 effects=s
op t forward kind=k time_ns=1 reads=a creates=u:7
op l forward kind=k time_ns=1 reads=u creates=loss:1
op b backward kind=k time_ns=1 workspace=5 reads=loss,a creates=gw:20
op o optimizer kind=k time_ns=1 reads=gw updates=w,m
output loss
)",
                                          R"(remat-schedule 1
run f reads=x,w creates=a
run t reads=a creates=u
run l reads=u creates=loss
free u
run b reads=loss,a creates=gw
free a
run o reads=gw updates=w,m
free gw
)");
  // Externals 10 + 20 + 40 + 3 = 73. Activations: a, needed in backward, and loss, an output.
  // u is needed in its own phase only: temporary. gw is made in backward for the optimizer:
  // gradient.
  struct Row {
    int64_t activation, temporary, gradient, workspace;
  };
  const std::vector<Row> expected = {
      {100, 0, 0, 0},   // f
      {100, 7, 0, 0},   // t
      {101, 7, 0, 0},   // l: 100 + 1
      {101, 0, 0, 0},   // free u
      {101, 0, 20, 5},  // b
      {1, 0, 20, 0},    // free a: loss stays
      {1, 0, 20, 0},    // o updates in place: nothing new
      {1, 0, 0, 0},     // free gw
  };
  ASSERT_EQ(simulation.timeline.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Moment& moment = simulation.timeline[i];
    const Row& row = expected[i];
    EXPECT_EQ(of_role(moment, Role::input), 10) << i;
    EXPECT_EQ(of_role(moment, Role::param), 20) << i;
    EXPECT_EQ(of_role(moment, Role::optimizer_state), 40) << i;
    EXPECT_EQ(of_role(moment, Role::buffer), 3) << i;
    EXPECT_EQ(of_role(moment, Role::activation), row.activation) << i;
    EXPECT_EQ(of_role(moment, Role::temporary), row.temporary) << i;
    EXPECT_EQ(of_role(moment, Role::gradient), row.gradient) << i;
    EXPECT_EQ(moment.workspace_bytes, row.workspace) << i;
    EXPECT_EQ(moment.bytes, 73 + row.activation + row.temporary + row.gradient + row.workspace)
        << i;
  }
  EXPECT_EQ(simulation.peak_bytes, 199);  // 73 + 101 + 20 + 5, at b
  EXPECT_EQ(simulation.peak_step, 4u);
}

TEST(Simulate, WorkspaceIsGoneWithItsOp) {
  const Simulation simulation = simulated(R"(remat-graph 1
op f forward kind=k time_ns=1 workspace=50 creates=a:8
op g forward kind=k time_ns=1 reads=a creates=b:8
output b
)",
                                          R"(remat-schedule 1
run f creates=a
run g reads=a creates=b
free a
)");
  EXPECT_EQ(bytes_of(simulation), (Bytes{8 + 50, 8 + 8, 8}));
  EXPECT_EQ(simulation.peak_step, 0u);
}

constexpr std::string_view kReuseGraph = R"(remat-graph 1
external x 1 input
op f forward kind=k time_ns=1 reads=x creates=a:60
op grow forward kind=k time_ns=1 workspace=3 reads=a creates=b:100 reuse=b<a
op shrink forward kind=k time_ns=1 workspace=3 reads=b creates=c:30 reuse=c<b
op same forward kind=k time_ns=1 workspace=3 reads=c creates=d:30 reuse=d<c
output d
)";

TEST(Simulate, AResultInAnInputsPlaceAddsWhatItHasBeyondIt) {
  const Simulation simulation = simulated(kReuseGraph, R"(remat-schedule 1
run f reads=x creates=a
run grow reads=a creates=b reuse=b<a
run shrink reads=b creates=c reuse=c<b
run same reads=c creates=d reuse=d<c
)");
  EXPECT_EQ(bytes_of(simulation), (Bytes{
                                      1 + 60,
                                      61 + 40 + 3,  // b: 100 in the place of 60
                                      101 + 3,      // c lies within b, which is there to the end
                                      1 + 30 + 3,   // d in the place of c; b's other 70 are gone
                                  }));
  // The larger source belongs to two storages while the op runs: both are temporaries here, of 30
  // and of 70 bytes.
  EXPECT_EQ(of_role(simulation.timeline[2], Role::temporary), 100);
  // Grow and shrink both reach 104: the first counts.
  EXPECT_EQ(simulation.peak_bytes, 104);
  EXPECT_EQ(simulation.peak_step, 1u);
}

TEST(Simulate, WithoutReuseBothAreThere) {
  const Simulation simulation = simulated(kReuseGraph, R"(remat-schedule 1
run f reads=x creates=a
run grow reads=a creates=b
free a
run shrink reads=b creates=c
free b
run same reads=c creates=d
free c
)");
  EXPECT_EQ(bytes_of(simulation),
            (Bytes{61, 61 + 100 + 3, 101, 101 + 30 + 3, 31, 31 + 30 + 3, 31}));
  EXPECT_EQ(simulation.peak_bytes, 164);
}

TEST(Simulate, ARecomputeIsACopyAndTakesItsTimeAgain) {
  const Simulation simulation = simulated(R"(remat-graph 1
external x 2 input
op f forward kind=k time_ns=7 reads=x creates=a:10
op g forward kind=k time_ns=1 reads=a creates=b:3
op h backward kind=k time_ns=2 reads=b,a creates=c:4
output c
)",
                                          R"(remat-schedule 1
run f reads=x creates=a
run g reads=a creates=b
recompute f reads=x creates=a#1
free a
run h reads=b,a#1 creates=c
free a#1
free b
)");
  EXPECT_EQ(bytes_of(simulation), (Bytes{12, 15, 25, 15, 19, 9, 6}));
  EXPECT_EQ(simulation.time_ns, 7 + 1 + 7 + 2);
  EXPECT_EQ(simulation.peak_step, 2u);  // both copies of a
}

// Every step in the header of small_step.h.
TEST(Simulate, TheSmallStep) {
  const Simulation simulation = simulated(testing::kSmallStepGraph, testing::kSmallStepSchedule);
  EXPECT_EQ(simulation.peak_bytes, testing::kSmallStepPeakBytes);
  EXPECT_EQ(simulation.peak_step, 14u);                    // the second conv
  EXPECT_EQ(simulation.timeline.back().bytes, 9 + 1 + 8);  // externals, l, ga
}

std::vector<int64_t> begins_of(const Simulation& simulation) {
  std::vector<int64_t> begins_ns;
  for (const Moment& moment : simulation.timeline) begins_ns.push_back(moment.begin_ns);
  return begins_ns;
}

// A packed copy counts for its packed bytes, one on the channel for none.
TEST(Simulate, BytesOfWhatIsPackedAndAway) {
  const Simulation simulation = simulated(testing::kMovingStepGraph, testing::kMovingStepSchedule);
  EXPECT_EQ(bytes_of(simulation), (Bytes{
                                      4 + 64,       // x, m
                                      68 + 100,     // a
                                      168 + 2,      // pack m
                                      170 - 64,     // free m
                                      106 + 40,     // r
                                      146,          // offload a: the write begins
                                      146 + 10,     // s
                                      156,          // relu, in place
                                      156 + 1,      // l
                                      157 - 10,     // free s
                                      147 + 5,      // pack r
                                      152 - 40,     // free r
                                      112 - 100,    // free a, when it is written
                                      12 + 40 + 7,  // b5: g5 and its workspace
                                      52 - 5,       // free r~
                                      47 + 100,     // prefetch a: the bytes are taken when the read begins
                                      147,          // free a^
                                      147,          // b3 writes over g5
                                      147 - 100,    // free a#1
                                      47 + 64,      // unpack m
                                      111 - 2,      // free m~
                                      109 + 10,     // g2
                                      119 - 40,     // free g3
                                      79 - 64,      // free m#1: x, l, g2
                                  }));
  EXPECT_EQ(simulation.peak_bytes, testing::kMovingStepPeakBytes);
  EXPECT_EQ(simulation.peak_step, 2u);
  // m~ is a part of m's role.
  EXPECT_EQ(of_role(simulation.timeline[3], Role::activation), 2 + 100);
}

// 100 bytes of a are written in 5 + 50 ns and read in 5 + 25.
TEST(Simulate, TimeOfWhatIsPackedAndAway) {
  const Simulation simulation = simulated(testing::kMovingStepGraph, testing::kMovingStepSchedule);
  EXPECT_EQ(begins_of(simulation), (Bytes{
                                       0,         // f1: 10
                                       10,        // f2: 20
                                       30,        // pack m: 3
                                       33,        // free m
                                       33,        // f3: 30
                                       63,        // offload a: until 63 + 55 = 118
                                       63,        // f4: 5
                                       68,        // relu: 5
                                       73,        // f5: 40
                                       113,       // free s
                                       113,       // pack r: 2
                                       115,       // free r
                                       118,       // free a waits for the write, 3 ns
                                       118,       // b5: 40
                                       158,       // free r~
                                       158,       // prefetch a: until 158 + 30 = 188
                                       158,       // free a^
                                       188,       // b3 waits for the read, 30 ns; takes 30
                                       218,       // free a#1
                                       218,       // unpack m: 4
                                       222, 222,  // free m~; b2: 20
                                       242, 242,  // frees
                                   }));
  EXPECT_EQ(simulation.time_ns, 200 + 3 + 2 + 4 + 3 + 30);  // ops, pack, pack, unpack, waits
  EXPECT_EQ(simulation.waited_ns, 3 + 30);
}

// a and b of 100 bytes each; a byte takes a nanosecond.
constexpr std::string_view kTransfers = R"(remat-graph 1
op a forward kind=k time_ns=10 creates=a:100
op b forward kind=k time_ns=10 creates=b:100
op c forward kind=k time_ns=10 reads=a,b creates=c:1
output c
channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=7
)";

TEST(Simulate, TransfersWaitForEachOther) {
  const Simulation simulation = simulated(kTransfers, R"(remat-schedule 1
run a creates=a
offload a reads=a creates=a^
run b creates=b
offload b reads=b creates=b^
free a
free b
prefetch b reads=b^ creates=b#1
prefetch a reads=a^ creates=a#1
free b^
free a^
run c reads=a#1,b#1 creates=c
free a#1
free b#1
)");
  EXPECT_EQ(begins_of(simulation), (Bytes{
                                       0, 10,  // a is written from 10 to 117
                                       10, 20, // b from 117 to 224
                                       117,    // free a
                                       224,    // free b
                                       224,    // b is read from 224 to 331
                                       224,    // a from 331 to 438
                                       224, 224,
                                       438,    // c
                                       448, 448,
                                   }));
  EXPECT_EQ(simulation.time_ns, 448);
  EXPECT_EQ(simulation.waited_ns, (117 - 20) + (224 - 117) + (438 - 224));
  EXPECT_EQ(bytes_of(simulation), (Bytes{100, 100, 200, 200, 100, 0, 100, 200, 200, 200, 201, 101, 1}));
}

// What was brought back and is freed unused, updated in place or offloaded again has been read by then.
TEST(Simulate, WhoeverEndsAReadWaitsForIt) {
  const Simulation simulation = simulated(kTransfers, R"(remat-schedule 1
run a creates=a
offload a reads=a creates=a^
free a
prefetch a reads=a^ creates=a#1
offload a reads=a#1 creates=a^#1
free a#1
prefetch a reads=a^#1 creates=a#2
free a#2
)");
  EXPECT_EQ(begins_of(simulation), (Bytes{
                                       0, 10,
                                       117,  // free a: written
                                       117,  // read until 224
                                       224,  // offload waits; written until 331
                                       331,  // free a#1
                                       331,  // read until 438
                                       438,  // free a#2
                                   }));
  EXPECT_EQ(simulation.time_ns, 438);
}

// Whoever called the step uses an output. Its read went on for nothing when the step was over.
TEST(Simulate, TheEndOfTheStepWaitsForOutputs) {
  const Simulation simulation = simulated(R"(remat-graph 1
op a forward kind=k time_ns=10 creates=a:100
op b forward kind=k time_ns=200 reads=a creates=b:100
output a
output b
channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=7
)",
                                          R"(remat-schedule 1
run a creates=a
offload a reads=a creates=a^
run b reads=a creates=b
free a
prefetch a reads=a^ creates=a#1
free a^
)");
  EXPECT_EQ(simulation.timeline.back().begin_ns, 210);
  EXPECT_EQ(simulation.time_ns, 210 + 107);
  EXPECT_EQ(simulation.waited_ns, 107);
}

TEST(Simulate, ReadsOfWhatIsBeingWrittenDoNotWait) {
  const Simulation simulation = simulated(kTransfers, R"(remat-schedule 1
run a creates=a
offload a reads=a creates=a^
run b creates=b
run c reads=a,b creates=c
free b
free a
free a^
)");
  EXPECT_EQ(simulation.timeline[3].begin_ns, 20);
  EXPECT_EQ(simulation.time_ns, 117);  // free a
  EXPECT_EQ(simulation.waited_ns, 117 - 30);
}

TEST(Simulate, ExternalsAlone) {
  constexpr std::string_view kGraph = "remat-graph 1\nexternal x 5 input\nexternal w 6 param\n";
  const Simulation simulation = simulated(kGraph, "remat-schedule 1\n");
  EXPECT_EQ(simulation.peak_bytes, 11);
  EXPECT_EQ(simulation.peak_step, 0u);
  EXPECT_EQ(simulation.time_ns, 0);
  EXPECT_TRUE(simulation.timeline.empty());
}

TEST(Simulate, NothingAtAll) {
  const Simulation simulation = simulated("remat-graph 1\n", "remat-schedule 1\n");
  EXPECT_EQ(simulation.peak_bytes, 0);
  EXPECT_TRUE(simulation.timeline.empty());
}

TEST(Simulate, OpsThatAddNothingLeaveThePeakAtTheExternals) {
  const Simulation simulation =
      simulated("remat-graph 1\nexternal w 6 param\nop o optimizer kind=k time_ns=3 updates=w\n",
                "remat-schedule 1\nrun o updates=w\n");
  EXPECT_EQ(bytes_of(simulation), (Bytes{6}));
  EXPECT_EQ(simulation.peak_bytes, 6);
  EXPECT_EQ(simulation.peak_step, 0u);
}

TEST(Simulate, RolesAndWorkspaceSumToTheBytesOnRandomGraphs) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const Schedule schedule = rewrite(graph, testing::random_order(generator, graph, 20));
    const Simulation simulation = simulate(graph, schedule);
    int64_t highest = graph.external_bytes();
    for (const Moment& moment : simulation.timeline) {
      int64_t sum = moment.workspace_bytes;
      for (const int64_t bytes : moment.by_role) {
        ASSERT_GE(bytes, 0) << seed;
        sum += bytes;
      }
      ASSERT_EQ(sum, moment.bytes) << seed;
      highest = std::max(highest, moment.bytes);
    }
    ASSERT_EQ(simulation.peak_bytes, highest) << seed;
    const Peak peak = simulate_peak(graph, schedule);
    ASSERT_EQ(peak.bytes, simulation.peak_bytes) << seed;
    ASSERT_EQ(peak.step, simulation.peak_step) << seed;
    ASSERT_EQ(peak.time_ns, simulation.time_ns) << seed;
  }
}

// Time is that of the ops and moves that run, and of the waits.
TEST(Simulate, TimesAddUpOnRandomGraphsWithMoves) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    const Schedule schedule = rewrite(
        graph, testing::with_random_moves(generator, graph, testing::random_order(generator, graph, 10), 30));
    const Simulation simulation = simulate(graph, schedule);
    int64_t busy_ns = 0;
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      const ScheduleStep& step = schedule.steps[s];
      const int64_t begin_ns = simulation.timeline[s].begin_ns;
      const int64_t end_ns = s + 1 < schedule.steps.size() ? simulation.timeline[s + 1].begin_ns : simulation.time_ns;
      const int64_t time_ns = step.kind == StepKind::free ? 0 : graph.op(step.op).time_ns;
      ASSERT_GE(end_ns, begin_ns + time_ns) << seed;
      busy_ns += time_ns;
    }
    ASSERT_EQ(simulation.time_ns, busy_ns + simulation.waited_ns) << seed;
    ASSERT_TRUE(graph.channel || simulation.waited_ns == 0) << seed;
  }
}

}  // namespace simulate_test
}  // namespace remat
