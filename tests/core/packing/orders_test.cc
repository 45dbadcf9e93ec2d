// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/orders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/testing/random_packing.h"

namespace remat {
namespace orders_test {

using detail::GreedyOrder;
using detail::GreedyOrders;
using detail::ItemOrder;

// Load by tick: 4, 9, 9+1, 6, 1: the peak is tick 2.
//   0: ticks 0..2, size 4      1: ticks 1..3, size 5      2: ticks 2..4, size 1
TEST(GreedyOrders, SortByWhatTheirNamesSay) {
  PackingProblem problem;
  problem.add({0, 2, 4});
  problem.add({1, 3, 5});
  problem.add({2, 4, 1});
  problem.add({5, 5, 9});  // 3: alone, away from the peak
  const GreedyOrders orders(problem);
  EXPECT_EQ(orders.sorted(GreedyOrder::size_start), (ItemOrder{3, 1, 0, 2}));
  EXPECT_EQ(orders.sorted(GreedyOrder::start), (ItemOrder{0, 1, 2, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::end), (ItemOrder{3, 2, 1, 0}));
  EXPECT_EQ(orders.sorted(GreedyOrder::area), (ItemOrder{1, 0, 3, 2}));
  EXPECT_EQ(orders.sorted(GreedyOrder::length), (ItemOrder{1, 0, 2, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::load_length), (ItemOrder{0, 1, 2, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::load_size), (ItemOrder{1, 0, 2, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::load_area), (ItemOrder{1, 0, 2, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::peak_length), (ItemOrder{0, 1, 2, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::peak_last), (ItemOrder{2, 1, 0, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::peak_first), (ItemOrder{0, 1, 2, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::peak_size), (ItemOrder{1, 0, 2, 3}));
  EXPECT_EQ(orders.sorted(GreedyOrder::peak_inside), (ItemOrder{1, 0, 2, 3}));
}

TEST(GreedyOrders, EachHoldsEveryItemOnce) {
  std::mt19937_64 generator(1);
  const PackingProblem problem = testing::random_packing(generator, 50, 30, 100);
  ItemOrder all(50);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  const GreedyOrders orders(problem);
  for (const GreedyOrder by : detail::first_fit_orders(50)) {
    ItemOrder order = orders.sorted(by);
    std::ranges::sort(order);
    EXPECT_EQ(order, all);
  }
}

TEST(GreedyOrders, FewerForManyItems) {
  EXPECT_LT(detail::first_fit_orders(1'000'000).size(), detail::first_fit_orders(100).size());
}

}  // namespace orders_test
}  // namespace remat
