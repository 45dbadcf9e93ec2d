// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/low_order.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "remat/core/graph_text.h"
#include "remat/core/order/cost.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace low_order_test {

constexpr int64_t kAnyPeak = std::numeric_limits<int64_t>::max();

// Both branches at once: 200; one after the other: 110.
TEST(LowPeakOrder, FinishesABranchBeforeTheNext) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 0 input
op a1 forward kind=k time_ns=1 reads=x creates=a:100
op b1 forward kind=k time_ns=1 reads=x creates=b:100
op a2 forward kind=k time_ns=1 reads=a creates=c:10
op b2 forward kind=k time_ns=1 reads=b creates=d:10
op end forward kind=k time_ns=1 reads=c,d creates=e:0
output e
)");
  OrderCost cost(graph);
  EXPECT_EQ(cost.evaluate(low_peak_order(graph), 0).peak_bytes, 120);
}

TEST(LowPeakOrder, IsLegalAndMostlyNoHigher) {
  int64_t lower = 0, higher = 0;
  for (uint64_t seed = 0; seed < testing::property_graphs(500); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const std::vector<OpId> order = low_peak_order(graph);
    ASSERT_EQ(order.size(), graph.ops.size());
    ASSERT_FALSE(verify(graph, rewrite(graph, order), kAnyPeak)) << "seed " << seed;
    std::vector<OpId> given = given_order(graph);
    OrderCost cost(graph);
    const int64_t before = cost.evaluate(given, 0).peak_bytes;
    const int64_t after = cost.evaluate(order, 0).peak_bytes;
    lower += after < before ? 1 : 0;
    higher += after > before ? 1 : 0;
  }
  EXPECT_GT(lower, higher);
}

}  // namespace low_order_test
}  // namespace remat
