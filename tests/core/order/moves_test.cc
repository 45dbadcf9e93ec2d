// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "remat/core/rewrite.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace moves_test {

constexpr double kAnything = std::numeric_limits<double>::infinity();

void expect_same(const OrderMoves& moves, OrderCost& cost, int64_t budget) {
  const std::vector<OpId> order = moves.order();
  const OrderCost::Result expected = cost.evaluate(order, budget);
  ASSERT_TRUE(expected.legal);
  ASSERT_DOUBLE_EQ(moves.overflow(), expected.overflow);
  ASSERT_TRUE(std::ranges::equal(moves.resident_bytes(), cost.resident_bytes()));
}

// Whatever was moved where, bytes are those of the order as a whole, and rewrite accepts it. Transfers that
// nobody needs take no part.
void equals_order_cost(bool with_moves, uint64_t graphs) {
  int64_t moved = 0, far = 0, refused = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    if (with_moves) testing::add_random_moves(generator, graph);
    OrderCost cost(graph);
    std::vector<OpId> order =
        testing::random_order(generator, graph, static_cast<int>(testing::draw(generator, 0, 30)));
    if (with_moves) {
      order = testing::with_random_moves(generator, graph, std::move(order), 30);
      order = order_of(graph, rewrite(graph, order));
    }
    const int64_t budget = cost.evaluate(order, 0).peak_bytes / 2;
    OrderMoves moves(graph, cost, Passing(graph), order, budget);
    ASSERT_NO_FATAL_FAILURE(expect_same(moves, cost, budget));
    for (int i = 0; i < 40; ++i) {
      const size_t from =
          static_cast<size_t>(testing::draw(generator, 0, static_cast<int64_t>(moves.size()) - 1));
      const bool later = testing::chance(generator, 0.5);
      const size_t reach = moves.reach(from, later);
      if (reach == 0) continue;
      const size_t far_by =
          static_cast<size_t>(testing::draw(generator, 1, static_cast<int64_t>(reach)));
      const size_t to = later ? from + far_by : from - far_by;
      const double tolerance = testing::chance(generator, 0.5) ? kAnything : 0;
      (moves.try_move(from, to, tolerance) ? moved : refused) += 1;
      far += far_by > 5 ? 1 : 0;
      ASSERT_NO_FATAL_FAILURE(expect_same(moves, cost, budget));
    }
    ASSERT_NO_THROW(rewrite(graph, moves.order()));
  }
  EXPECT_GT(moved, static_cast<int64_t>(graphs));
  EXPECT_GT(refused, static_cast<int64_t>(graphs));
  EXPECT_GT(far, 0);
}

TEST(OrderMoves, EqualsOrderCostAfterEveryMove) { equals_order_cost(false, testing::property_graphs(2'000)); }

TEST(OrderMoves, EqualsOrderCostAfterEveryMoveAmongMoves) {
  equals_order_cost(true, testing::property_graphs(1'500));
}

TEST(OrderMoves, RefusesWhatIsWorseOrTooHigh) {
  const Graph graph = [] {
    std::mt19937_64 generator(7);
    return testing::random_graph(generator);
  }();
  OrderCost cost(graph);
  std::vector<OpId> order = given_order(graph);
  const int64_t peak = cost.evaluate(order, 0).peak_bytes;
  OrderMoves moves(graph, cost, Passing(graph), order, peak / 2);
  for (size_t from = 0; from < moves.size(); ++from) {
    if (moves.reach(from, true) == 0) continue;
    EXPECT_FALSE(moves.try_move(from, from + 1, kAnything, 0));
    const double before = moves.overflow();
    moves.try_move(from, from + 1, 0);
    EXPECT_LE(moves.overflow(), before);
  }
}

}  // namespace moves_test
}  // namespace remat
