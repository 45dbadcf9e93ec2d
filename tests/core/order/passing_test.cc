// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/passing.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/order/cost.h"
#include "remat/core/order/shifts.h"
#include "remat/core/rewrite.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace passing_test {

// How far op 0 can go in an order of three.
size_t reach_of_first(const std::string& ops) {
  const Graph graph = parse_graph("remat-graph 1\nexternal x 4 input\nexternal e 4 buffer\n" + ops);
  return Passing(graph).reach(given_order(graph), 0, true);
}

TEST(Passing, StopsAtWhoeverChangesWhatIsTouched) {
  // Readers of the same pass each other.
  EXPECT_EQ(reach_of_first("op f forward kind=k time_ns=1 reads=x creates=a:4\n"
                           "op g forward kind=k time_ns=1 reads=x creates=b:4\n"
                           "op h forward kind=k time_ns=1 reads=b creates=c:4\n"),
            2u);
  // What f creates, h reads.
  EXPECT_EQ(reach_of_first("op f forward kind=k time_ns=1 reads=x creates=a:4\n"
                           "op g forward kind=k time_ns=1 reads=x creates=b:4\n"
                           "op h forward kind=k time_ns=1 reads=a creates=c:4\n"),
            1u);
  // What f reads, h has an effect on.
  EXPECT_EQ(reach_of_first("op f forward kind=k time_ns=1 reads=e creates=a:4\n"
                           "op g forward kind=k time_ns=1 reads=x creates=b:4\n"
                           "op h forward kind=k time_ns=1 reads=x creates=c:4 effects=e\n"),
            1u);
  // What f reads, h updates.
  EXPECT_EQ(reach_of_first("op f forward kind=k time_ns=1 reads=e creates=a:4\n"
                           "op g forward kind=k time_ns=1 reads=x creates=b:4\n"
                           "op h forward kind=k time_ns=1 updates=e\n"),
            1u);
  // Both are random; the op between is not.
  EXPECT_EQ(reach_of_first("op f forward kind=k time_ns=1 reads=x creates=a:4 random\n"
                           "op g forward kind=k time_ns=1 reads=x creates=b:4 once\n"
                           "op h forward kind=k time_ns=1 reads=x creates=c:4 random\n"),
            1u);
}

// An offload ends the copy that it reads: no reader of it passes, and nothing that makes it again.
TEST(Passing, NothingThatUsesACopyPassesItsOffload) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const auto move_of = [&](MoveKind kind, std::string_view storage) {
    for (size_t i = 0; i < graph.moves.size(); ++i) {
      const Move& move = graph.moves[i];
      const bool same = graph.storage(move.value.storage).name == storage;
      if (move.kind == kind && same) return static_cast<OpId>(graph.ops.size() + i);
    }
    return OpId{};
  };
  const OpId offload = move_of(MoveKind::offload, "a"), prefetch = move_of(MoveKind::prefetch, "a");
  const OpId pack = move_of(MoveKind::pack, "r"), reader = move_of(MoveKind::read_packed, "r");
  Passing passing(graph);
  const auto reach = [&](std::vector<OpId> order, size_t from) { return passing.reach(order, from, true); };
  EXPECT_EQ(reach({OpId{2}, offload}, 0), 0u);   // f3 reads a
  EXPECT_EQ(reach({offload, OpId{2}}, 0), 0u);
  EXPECT_EQ(reach({offload, OpId{3}, OpId{1}}, 0), 1u);  // f4 does not; f2 makes it
  EXPECT_EQ(reach({offload, prefetch}, 0), 0u);
  EXPECT_EQ(reach({prefetch, OpId{7}}, 0), 0u);  // b3 reads what comes back
  // A pack is a reader as others are; the packed bytes are what it makes.
  EXPECT_EQ(reach({OpId{5}, pack}, 0), 1u);
  EXPECT_EQ(reach({pack, reader}, 0), 0u);
  EXPECT_EQ(reach({OpId{4}, pack}, 0), 0u);  // relu updates r
  EXPECT_EQ(reach({reader, offload}, 0), 1u);
}

TEST(Passing, EqualsTheLimitsOfOrderShiftsAmongMoves) {
  const uint64_t graphs = testing::property_graphs(300);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    const OrderCost cost(graph);
    Passing passing(graph);
    const std::vector<OpId> order =
        testing::with_random_moves(generator, graph, testing::random_order(generator, graph, 10), 30);
    const OrderShifts shifts(graph, cost, passing, order, 0);
    for (size_t from = 0; from < order.size(); ++from) {
      for (const bool later : {false, true}) {
        const size_t reach = passing.reach(order, from, later);
        ASSERT_EQ(shifts.reach(from, later), reach) << "seed " << seed << ", run " << from;
        // As far as it may go, the order is as legal as before.
        std::vector<OpId> moved = order;
        const size_t to = later ? from + reach : from - reach;
        moved.erase(moved.begin() + static_cast<std::ptrdiff_t>(from));
        moved.insert(moved.begin() + static_cast<std::ptrdiff_t>(to), order[from]);
        ASSERT_NO_THROW(rewrite(graph, moved)) << "seed " << seed << ", run " << from;
      }
    }
  }
}

// Two ways to the same answer: OrderShifts finds the limits of all runs in one pass over an order.
TEST(Passing, EqualsTheLimitsOfOrderShifts) {
  int64_t free = 0, bound = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(1'000));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const OrderCost cost(graph);
    Passing passing(graph);
    const std::vector<OpId> order = testing::random_order(generator, graph, 10);
    const OrderShifts shifts(graph, cost, passing, order, 0);
    for (size_t from = 0; from < order.size(); ++from) {
      for (const bool later : {false, true}) {
        const size_t reach = passing.reach(order, from, later);
        ASSERT_EQ(shifts.reach(from, later), reach) << "seed " << seed << ", run " << from;
        ++(reach > 0 ? free : bound);
      }
    }
  }
  EXPECT_GT(free, graphs);
  EXPECT_GT(bound, graphs);
}

}  // namespace passing_test
}  // namespace remat
