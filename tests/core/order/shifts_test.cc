// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/shifts.h"

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
namespace shifts_test {

constexpr double kAnything = std::numeric_limits<double>::infinity();

void expect_same(const OrderShifts& shifts, OrderCost& cost, int64_t budget) {
  const std::vector<OpId> order = shifts.order();
  const OrderCost::Result expected = cost.evaluate(order, budget);
  ASSERT_TRUE(expected.legal);
  ASSERT_DOUBLE_EQ(shifts.overflow(), expected.overflow);
  ASSERT_TRUE(std::ranges::equal(shifts.resident_bytes(), cost.resident_bytes()));
}

// After every shift the bytes are those of the order as a whole, and rewrite accepts it. Needless transfers
// take no part.
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
    OrderShifts shifts(graph, cost, Passing(graph), order, budget);
    ASSERT_NO_FATAL_FAILURE(expect_same(shifts, cost, budget));
    for (int i = 0; i < 40; ++i) {
      const size_t from =
          static_cast<size_t>(testing::draw(generator, 0, static_cast<int64_t>(shifts.size()) - 1));
      const bool later = testing::chance(generator, 0.5);
      const size_t reach = shifts.reach(from, later);
      if (reach == 0) continue;
      const size_t far_by =
          static_cast<size_t>(testing::draw(generator, 1, static_cast<int64_t>(reach)));
      const size_t to = later ? from + far_by : from - far_by;
      const double tolerance = testing::chance(generator, 0.5) ? kAnything : 0;
      (shifts.try_shift(from, to, tolerance) ? moved : refused) += 1;
      far += far_by > 5 ? 1 : 0;
      ASSERT_NO_FATAL_FAILURE(expect_same(shifts, cost, budget));
    }
    ASSERT_NO_THROW(rewrite(graph, shifts.order()));
  }
  EXPECT_GT(moved, static_cast<int64_t>(graphs));
  EXPECT_GT(refused, static_cast<int64_t>(graphs));
  EXPECT_GT(far, 0);
}

TEST(OrderShifts, EqualsOrderCostAfterEveryShift) { equals_order_cost(false, testing::property_graphs(2'000)); }

TEST(OrderShifts, EqualsOrderCostAfterEveryShiftAmongMoves) {
  equals_order_cost(true, testing::property_graphs(1'500));
}

TEST(OrderShifts, RefusesWhatIsWorseOrTooHigh) {
  const Graph graph = [] {
    std::mt19937_64 generator(7);
    return testing::random_graph(generator);
  }();
  OrderCost cost(graph);
  std::vector<OpId> order = given_order(graph);
  const int64_t peak = cost.evaluate(order, 0).peak_bytes;
  OrderShifts shifts(graph, cost, Passing(graph), order, peak / 2);
  for (size_t from = 0; from < shifts.size(); ++from) {
    if (shifts.reach(from, true) == 0) continue;
    EXPECT_FALSE(shifts.try_shift(from, from + 1, kAnything, 0));
    const double before = shifts.overflow();
    shifts.try_shift(from, from + 1, 0);
    EXPECT_LE(shifts.overflow(), before);
  }
}

}  // namespace shifts_test
}  // namespace remat
