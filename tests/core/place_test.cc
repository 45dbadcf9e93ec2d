// SPDX-License-Identifier: Apache-2.0
#include "remat/core/place.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/check_placement.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace place_test {

using testing::placement_fault;

// Only counted work may end a search here: what a test sees must not depend on the machine.
Placement place_with(const Graph& graph, const Schedule& schedule, int64_t nodes) {
  Effort effort = testing::search_nodes(nodes);
  return place(graph, schedule, {}, effort);
}

// A graph from text, its ops in the order in which they stand (or in `order`, by number), placed
// and checked.
struct Placed {
  explicit Placed(std::string_view text, std::vector<int32_t> order = {})
      : graph(parse_graph("remat-graph 1\n" + std::string(text))) {
    std::vector<OpId> ops;
    if (order.empty()) {
      for (size_t i = 0; i < graph.ops.size(); ++i) ops.push_back(static_cast<OpId>(i));
    }
    for (const int32_t op : order) ops.push_back(static_cast<OpId>(op));
    schedule = rewrite(graph, ops);
    placement = place_with(graph, schedule, 100'000);
    EXPECT_EQ(placement_fault(graph, schedule, placement), "");
  }

  int64_t offset(std::string_view instance) const {
    for (size_t i = 0; i < schedule.instances.size(); ++i) {
      if (instance_name(graph, schedule.instances[i]) == instance) {
        return placement.instance_offset[i];
      }
    }
    ADD_FAILURE() << "no instance " << instance;
    return kNoAddress;
  }

  Graph graph;
  Schedule schedule;
  Placement placement;
};

// What it does is paid for by the plan that it is done for, the greedy orders included.
TEST(Place, IsChargedToAnEffort) {
  std::mt19937_64 generator(1);
  const Graph graph = testing::random_graph(generator);
  const Schedule schedule = rewrite(graph, given_order(graph));
  Effort effort;
  place(graph, schedule, {.time_limit_seconds = 0}, effort);
  EXPECT_GT(effort.spent(), 0);
}

TEST(Place, NothingNeedsNoArena) {
  const Placed placed("external x 100 input\n");
  EXPECT_EQ(placed.placement.arena_bytes, 0);
  EXPECT_EQ(placed.placement.max_live_bytes, 0);
  EXPECT_TRUE(placed.placement.optimal);
  EXPECT_EQ(placed.offset("x"), kNoAddress);
}

// 100 rounds up to 128, 1 to 64. f and g: 128 + 64 = 192; then a is gone and c (128) takes its
// place.
TEST(Place, RoundsUpToTheAlignment) {
  const Placed placed(R"(external x 100 input
op f forward kind=k time_ns=1 reads=x creates=a:100
op g forward kind=k time_ns=1 reads=a creates=b:1
op h forward kind=k time_ns=1 reads=b creates=c:128
output c
)");
  EXPECT_EQ(placed.placement.arena_bytes, 192);
  EXPECT_EQ(placed.placement.max_live_bytes, 192);
  EXPECT_TRUE(placed.placement.optimal);
}

// The output o lives to the end although nobody reads it: o, a and b while g runs, 64 + 128 + 192;
// o, b and c while h runs, as much again.
TEST(Place, OutputsStayToTheEnd) {
  const Placed placed(R"(op f forward kind=k time_ns=1 creates=o:64,a:128
op g forward kind=k time_ns=1 reads=a creates=b:192
op h forward kind=k time_ns=1 reads=b creates=c:128
output o
)");
  EXPECT_EQ(placed.placement.arena_bytes, 384);
  EXPECT_TRUE(placed.placement.optimal);
}

// f's workspace (256) is gone when g runs, so b (192) fits there: a 64 + 256 = 320.
TEST(Place, WorkspacesLiveForOneStep) {
  const Placed placed(R"(op f forward kind=k time_ns=1 workspace=250 creates=a:64
op g forward kind=k time_ns=1 workspace=10 reads=a creates=b:192
output b
)");
  EXPECT_EQ(placed.placement.arena_bytes, 320);
  EXPECT_EQ(placed.placement.max_live_bytes, 320);  // g: 64 + 192 + 64 as well
  EXPECT_NE(placed.placement.workspace_offset[0], kNoAddress);
}

// A chain a -> b -> c in one place: 128, 256, 64 bytes. While g runs, the pair takes
// max(128, 256) = 256, while h runs max(256, 64) = 256; d (192) comes when only c is left: 64 +
// 192.
TEST(Place, ReuseChainsShareTheAddress) {
  const Placed placed(R"(op f forward kind=k time_ns=1 creates=a:128
op g forward kind=k time_ns=1 reads=a creates=b:256 reuse=b<a
op h forward kind=k time_ns=1 reads=b creates=c:64 reuse=c<b
op i forward kind=k time_ns=1 reads=c creates=d:192
output d
)");
  EXPECT_EQ(placed.offset("a"), placed.offset("b"));
  EXPECT_EQ(placed.offset("b"), placed.offset("c"));
  EXPECT_EQ(placed.placement.max_live_bytes, 256);
  EXPECT_EQ(placed.placement.arena_bytes, 256);
}

// What is left of a larger source is there until the op is done: while g runs, a (256) and the
// workspace (64) need 320 although the result b has only 64.
TEST(Place, TheSourcesRestStaysWhileTheOpRuns) {
  const Placed placed(R"(op f forward kind=k time_ns=1 creates=a:256
op g forward kind=k time_ns=1 workspace=64 reads=a creates=b:64 reuse=b<a
output b
)");
  EXPECT_EQ(placed.offset("a"), placed.offset("b"));
  EXPECT_EQ(placed.placement.arena_bytes, 320);
}

TEST(Place, NoBytesTakeNoSpace) {
  const Placed placed(R"(op f forward kind=k time_ns=1 creates=a:0,b:64,c:0
op g forward kind=k time_ns=1 reads=a,b creates=d:0 reuse=d<b
op h forward kind=k time_ns=1 reads=d,c creates=e:128 reuse=e<d
output e
output c
)");
  EXPECT_EQ(placed.placement.arena_bytes, 128);
  EXPECT_GE(placed.offset("a"), 0);
  EXPECT_EQ(placed.offset("b"), placed.offset("d"));
  EXPECT_EQ(placed.offset("d"), placed.offset("e"));
}

// a is recomputed: two instances with two lives, free to lie at two addresses.
TEST(Place, EveryInstanceHasItsOwnLife) {
  const Placed placed(R"(external x 8 input
op f forward kind=k time_ns=1 reads=x creates=a:640
op g forward kind=k time_ns=1 reads=a creates=b:64
op h forward kind=k time_ns=1 reads=b creates=c:640
op i backward kind=k time_ns=1 reads=c creates=d:64
op j backward kind=k time_ns=1 reads=a,d creates=e:64
output e
)",
                      {0, 1, 2, 3, 0, 4});
  EXPECT_EQ(placed.placement.arena_bytes, 640 + 64 + 64);  // j: a#1, d, e
  EXPECT_GE(placed.offset("a#1"), 0);
}

TEST(Place, RejectsAScheduleThatDoesNotAddUp) {
  const Graph graph = parse_graph(R"(remat-graph 1
op f forward kind=k time_ns=1 creates=a:64
)");
  Schedule schedule = parse_schedule("remat-schedule 1\nrun f creates=a\nfree a\n", graph);
  schedule.steps.push_back(schedule.steps.back());
  EXPECT_THROW(place(graph, schedule), Error);
  std::swap(schedule.steps[0], schedule.steps[1]);
  EXPECT_THROW(place(graph, schedule), Error);
}

// The ops of the graph with some of them again at random places, as far as rewrite allows it.
std::vector<OpId> random_order(std::mt19937_64& generator, const Graph& graph, int repeats) {
  std::vector<OpId> order = given_order(graph);
  for (int i = 0; i < repeats; ++i) {
    const int64_t at = testing::draw(generator, 1, static_cast<int64_t>(order.size()));
    const OpId op = order[static_cast<size_t>(testing::draw(generator, 0, at - 1))];
    std::vector<OpId> longer = order;
    longer.insert(longer.begin() + at, op);
    try {
      rewrite(graph, longer);
      order = std::move(longer);
    } catch (const Error&) {
      continue;
    }
  }
  return order;
}

TEST(Place, HoldsOnRandomGraphsWithRecomputation) {
  int wasteful = 0;
  constexpr int kGraphs = 3000;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    std::mt19937_64 generator(seed);
    testing::RandomGraphOptions options;
    options.forward_ops = static_cast<int>(testing::draw(generator, 1, 24));
    options.reuse_rate = 0.6;
    options.largest_bytes = testing::chance(generator, 0.2) ? 100 : 4096;
    const Graph graph = testing::random_graph(generator, options);
    const Schedule schedule = rewrite(graph, random_order(generator, graph, 8));
    const Placement placement = place_with(graph, schedule, 20'000);
    ASSERT_EQ(placement_fault(graph, schedule, placement), "") << "seed " << seed;
    wasteful += placement.arena_bytes > placement.max_live_bytes ? 1 : 0;
  }
  EXPECT_LE(wasteful, kGraphs / 20) << "tight in 95 of 100";
}

TEST(Place, SameInputSamePlacement) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 generator(seed);
    testing::RandomGraphOptions options;
    options.forward_ops = 60;
    const Graph graph = testing::random_graph(generator, options);
    const Schedule schedule = rewrite(graph, random_order(generator, graph, 20));
    const Placement once = place_with(graph, schedule, 5000);
    const Placement again = place_with(graph, schedule, 5000);
    EXPECT_EQ(once.instance_offset, again.instance_offset) << "seed " << seed;
    EXPECT_EQ(once.workspace_offset, again.workspace_offset) << "seed " << seed;
  }
}

// The channel takes addresses and sizes that are multiples of 128: m 128, a 128, m~ 128, ... Most is live
// at f5 (a, m~, r, s, l) and at b5 (l, m~, r~, g5, its workspace): five times 128.
TEST(Place, OffloadedSchedulesHaveTheAlignmentOfTheChannel) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const Schedule schedule = parse_schedule(testing::kMovingStepSchedule, graph);
  EXPECT_EQ(arena_alignment(graph, schedule), 128);
  const Placement placement = place_with(graph, schedule, 100'000);
  EXPECT_EQ(placement_fault(graph, schedule, placement), "");
  EXPECT_EQ(placement.max_live_bytes, 5 * 128);
  EXPECT_EQ(placement.arena_bytes, 5 * 128);
  EXPECT_EQ(placement.channel_bytes, 128);
  for (size_t i = graph.external_count; i < schedule.instances.size(); ++i) {
    EXPECT_EQ(placement.instance_offset[i] % 128, 0) << i;
  }
}

TEST(Place, WithoutOffloadsTheChannelDoesNotMatter) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const Schedule schedule = rewrite(graph, given_order(graph));
  EXPECT_EQ(arena_alignment(graph, schedule), 64);
  EXPECT_EQ(place(graph, schedule).channel_bytes, 0);
}

// a of 200 bytes and b of 10, which is written twice: 256, 128 and 128 on the channel.
TEST(Place, EveryOffloadHasBytesOfItsOwnOnTheChannel) {
  const Graph graph = parse_graph(R"(remat-graph 1
op a forward kind=k time_ns=1 creates=a:200
op b forward kind=k time_ns=1 creates=b:10
op c forward kind=k time_ns=1 reads=a,b creates=c:1
output c
channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0 alignment=128
)");
  const Schedule schedule = parse_schedule(R"(remat-schedule 1
run b creates=b
offload b reads=b creates=b^
free b
run a creates=a
offload a reads=a creates=a^
free a
prefetch b reads=b^ creates=b#1
free b^
offload b reads=b#1 creates=b^#1
free b#1
prefetch b reads=b^#1 creates=b#2
free b^#1
prefetch a reads=a^ creates=a#1
free a^
run c reads=a#1,b#2 creates=c
free a#1
free b#2
)",
                                           graph);
  const Placement placement = place_with(graph, schedule, 100'000);
  EXPECT_EQ(placement_fault(graph, schedule, placement), "");
  EXPECT_EQ(placement.channel_bytes, 128 + 256 + 128);
  const auto offset = [&](std::string_view instance) {
    for (size_t i = 0; i < schedule.instances.size(); ++i) {
      if (instance_name(graph, schedule.instances[i]) == instance) return placement.instance_offset[i];
    }
    return kNoAddress;
  };
  EXPECT_EQ(offset("b^"), 0);
  EXPECT_EQ(offset("a^"), 128);
  EXPECT_EQ(offset("b^#1"), 128 + 256);
}

TEST(Place, IsRightOnRandomGraphsWithMoves) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    const Schedule schedule = rewrite(
        graph, testing::with_random_moves(generator, graph, testing::random_order(generator, graph, 10), 40));
    ASSERT_EQ(placement_fault(graph, schedule, place_with(graph, schedule, 1000)), "") << "seed " << seed;
  }
}

}  // namespace place_test
}  // namespace remat
