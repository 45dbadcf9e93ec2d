// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify_addresses.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/check_placement.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace verify_addresses_test {

// b is there together with a, c takes b's place; each is 64 bytes.
constexpr std::string_view kGraph = R"(remat-graph 1
external x 64 input
op one forward kind=k time_ns=1 workspace=64 reads=x creates=a:64
op two forward kind=k time_ns=1 reads=a creates=b:64
op three forward kind=k time_ns=1 reads=a,b creates=c:64 reuse=c<b
output c
)";

struct Placed {
  Placed() : Placed(parse_graph(kGraph)) {}
  explicit Placed(Graph of) : graph(std::move(of)) {
    schedule = rewrite(graph, given_order(graph));
    placement = place(graph, schedule);
  }
  Placed(std::string_view graph_text, std::string_view schedule_text) : graph(parse_graph(graph_text)) {
    schedule = parse_schedule(schedule_text, graph);
    placement = place(graph, schedule);
  }
  Graph graph;
  Schedule schedule;
  Placement placement;

  std::string fault() const { return fault_in_addresses(graph, schedule, placement); }
  int64_t& address(const std::string& instance) {
    for (size_t i = 0; i < schedule.instances.size(); ++i) {
      if (instance_name(graph, schedule.instances[i]) == instance) return placement.instance_offset[i];
    }
    throw std::runtime_error("no instance " + instance);
  }
};

TEST(VerifyAddresses, AcceptsWhatPlaceFinds) {
  const uint64_t graphs = testing::property_graphs(500);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const Schedule schedule = rewrite(graph, testing::random_order(generator, graph, 20));
    const Placement placement = place(graph, schedule, {.time_limit_seconds = 0.001});
    ASSERT_EQ(fault_in_addresses(graph, schedule, placement), "") << "seed " << seed;
  }
}

// One address is moved to that of another thing: where the tests' own checker, which looks at every
// step anew, sees a fault, so does this one.
TEST(VerifyAddresses, AgreesWithTheTestsCheckerOnMovedAddresses) {
  const uint64_t graphs = testing::property_graphs(1000);
  uint64_t wrong = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const Schedule schedule = rewrite(graph, testing::random_order(generator, graph, 20));
    Placement placement = place(graph, schedule, {.time_limit_seconds = 0.001});
    const auto internal = [&] {
      return static_cast<size_t>(
          testing::draw(generator, static_cast<int64_t>(graph.external_count),
                        static_cast<int64_t>(schedule.instances.size()) - 1));
    };
    placement.instance_offset[internal()] = placement.instance_offset[internal()];
    const std::string expected = testing::placement_fault(graph, schedule, placement);
    ASSERT_EQ(fault_in_addresses(graph, schedule, placement).empty(), expected.empty())
        << "seed " << seed << ": " << expected;
    wrong += expected.empty() ? 0 : 1;
  }
  EXPECT_GT(wrong, graphs / 10);  // the property was tried
}

TEST(VerifyAddresses, AgreesWithTheTestsCheckerOnMovedAddressesOfMoves) {
  const uint64_t graphs = testing::property_graphs(500);
  uint64_t wrong = 0, on_channel = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    const Schedule schedule = rewrite(
        graph, testing::with_random_moves(generator, graph, testing::random_order(generator, graph, 10), 40));
    Placement placement = place(graph, schedule, {.time_limit_seconds = 0.001});
    ASSERT_EQ(fault_in_addresses(graph, schedule, placement), "") << "seed " << seed;
    ASSERT_EQ(testing::placement_fault(graph, schedule, placement), "") << "seed " << seed;
    const auto internal = [&] {
      return static_cast<size_t>(
          testing::draw(generator, static_cast<int64_t>(graph.external_count),
                        static_cast<int64_t>(schedule.instances.size()) - 1));
    };
    const size_t moved = internal();
    const int64_t before = placement.instance_offset[moved];
    placement.instance_offset[moved] = placement.instance_offset[internal()];
    const bool away = graph.storage(schedule.instances[moved].storage).name.back() == '^';
    on_channel += away;
    const std::string found = fault_in_addresses(graph, schedule, placement);
    if (away) {  // one place is right, whatever else would do
      ASSERT_EQ(found.empty(), before == placement.instance_offset[moved]) << "seed " << seed << ": " << found;
    } else {
      const std::string expected = testing::placement_fault(graph, schedule, placement);
      ASSERT_EQ(found.empty(), expected.empty()) << "seed " << seed << ": " << expected << "; " << found;
    }
    wrong += !found.empty();
  }
  EXPECT_GT(wrong, graphs / 10);
  EXPECT_GT(on_channel, graphs / 100);
}

Placed moving_step() { return {testing::kMovingStepGraph, testing::kMovingStepSchedule}; }

TEST(VerifyAddresses, AScheduleThatOffloadsHasTheAlignmentOfTheChannel) {
  Placed placed = moving_step();
  ASSERT_EQ(placed.fault(), "");
  placed.address("m") += 64;
  EXPECT_NE(placed.fault().find("; expected a multiple of 128"), std::string::npos) << placed.fault();
  // Without an offload the arena's own alignment is enough.
  placed.schedule = rewrite(placed.graph, given_order(placed.graph));
  placed.placement = place(placed.graph, placed.schedule);
  EXPECT_EQ(placed.fault(), "");
  EXPECT_EQ(arena_alignment(placed.graph, placed.schedule), 64);
}

TEST(VerifyAddresses, NamesWhatLiesElsewhereOnTheChannel) {
  Placed placed = moving_step();
  EXPECT_EQ(placed.address("a^"), 0);
  placed.address("a^") = 128;
  EXPECT_EQ(placed.fault(), "a^ is at 128 on the channel; expected 0");
  placed = moving_step();
  EXPECT_EQ(placed.placement.channel_bytes, 128);
  placed.placement.channel_bytes = 256;
  EXPECT_EQ(placed.fault(), "the channel is said to hold 256 bytes; it holds 128");
  placed = moving_step();
  placed.address("a#1") = placed.address("l");
  EXPECT_EQ(placed.fault(), "a#1 overlaps l");
}

TEST(VerifyAddresses, NamesPackedBytesThatOverlap) {
  Placed placed = moving_step();
  placed.address("m~") = placed.address("a");
  EXPECT_EQ(placed.fault(), "m~ overlaps a");
}

TEST(VerifyAddresses, NamesWhatOverlaps) {
  Placed placed;
  ASSERT_EQ(placed.fault(), "");
  placed.address("b") = placed.address("a");
  EXPECT_EQ(placed.fault(), "b overlaps a");
}

TEST(VerifyAddresses, NamesWorkspaceThatOverlaps) {
  Placed placed;
  placed.placement.workspace_offset[0] = placed.address("a");
  EXPECT_EQ(placed.fault(), "the workspace of one overlaps a");
}

TEST(VerifyAddresses, RefusesAddressesThatAreNotAligned) {
  Placed placed;
  placed.address("a") += 1;
  EXPECT_NE(placed.fault().find("expected a multiple of 64"), std::string::npos) << placed.fault();
}

TEST(VerifyAddresses, RefusesAddressesBeyondTheArena) {
  Placed placed;
  placed.address("a") = placed.placement.arena_bytes;
  EXPECT_NE(placed.fault().find("ends beyond the arena"), std::string::npos) << placed.fault();
}

TEST(VerifyAddresses, RefusesReuseAtAnotherAddress) {
  Placed placed;
  placed.address("c") = placed.address("a");
  EXPECT_EQ(placed.fault(), "c takes the place of b at another address");
}

TEST(VerifyAddresses, RefusesAnArenaOfAnotherSize) {
  Placed placed;
  placed.placement.arena_bytes += 64;
  EXPECT_EQ(placed.fault(), "the arena is 192 bytes; what it holds ends at 128");
}

TEST(VerifyAddresses, RefusesAnotherLargestLoad) {
  Placed placed;
  placed.placement.max_live_bytes -= 64;
  EXPECT_EQ(placed.fault(), "the largest load is said to be 64 bytes; it is 128");
}

TEST(VerifyAddresses, RefusesMissingAndSuperfluousAddresses) {
  Placed placed;
  placed.placement.workspace_offset[0] = kNoAddress;
  EXPECT_NE(placed.fault(), "");
  placed = Placed();
  placed.placement.instance_offset[0] = 0;
  EXPECT_EQ(placed.fault(), "x has an address, but lives outside");
  placed = Placed();
  placed.placement.instance_offset.pop_back();
  EXPECT_NE(placed.fault(), "");
}

}  // namespace verify_addresses_test
}  // namespace remat
