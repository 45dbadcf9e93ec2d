// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/reorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace reorder_test {

// Three branches that end in next to nothing. All large values at once: 300; one after the other: 102.
constexpr const char* kBranches = R"(remat-graph 1
external x 0 input
op a1 forward kind=k time_ns=1 reads=x creates=a:100
op b1 forward kind=k time_ns=1 reads=x creates=b:100
op c1 forward kind=k time_ns=1 reads=x creates=c:100
op a2 forward kind=k time_ns=1 reads=a creates=d:1
op b2 forward kind=k time_ns=1 reads=b creates=e:1
op c2 forward kind=k time_ns=1 reads=c creates=f:1
op sum forward kind=k time_ns=1 reads=d,e,f creates=g:0
output g
)";

TEST(Reorder, FindsTheOrderThatFits) {
  const Graph graph = parse_graph(kBranches);
  SearchContext context(graph, {.budget_bytes = 103});
  Effort effort;
  FoundOrder found = context.start(given_order(graph), effort);
  EXPECT_EQ(found.cost.peak_bytes, 301);
  reorder(context, found, 1'000'000, effort, 0.5);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.cost.time_ns, 7);
  EXPECT_NO_THROW(rewrite(graph, found.order));
}

TEST(Reorder, LeavesAloneWhatMustStay) {
  const Graph graph = parse_graph(kBranches);
  SearchContext context(graph, {.budget_bytes = 103, .keep_order = true});
  Effort effort;
  FoundOrder found = context.start(given_order(graph), effort);
  reorder(context, found, 1'000'000, effort);
  EXPECT_EQ(found.order, given_order(graph));
}

TEST(Reorder, SpendsNoMoreThanItIsGiven) {
  const Graph graph = parse_graph(kBranches);
  SearchContext context(graph, {.budget_bytes = 1});  // cannot be reached
  Effort effort;
  FoundOrder found = context.start(given_order(graph), effort);
  const int64_t before = effort.spent();
  reorder(context, found, 100'000, effort);
  EXPECT_GE(effort.spent() - before, 100'000);
  EXPECT_LT(effort.spent() - before, 101'000);  // the last move, and the evaluation of the result
}

// The overflow never grows, the runs stay the same ones, and rewrite accepts the order.
TEST(Reorder, IsRightOnRandomGraphs) {
  int64_t lower = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(300));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    std::vector<OpId> order = testing::random_order(generator, graph, 8);
    Effort effort;
    SearchContext context(graph, {.budget_bytes = 1, .seed = seed});
    context.budget_bytes = context.start(order, effort).cost.peak_bytes * 3 / 4;
    FoundOrder found = context.start(order, effort);
    const double before = found.cost.overflow;
    reorder(context, found, 20'000, effort);
    ASSERT_LE(found.cost.overflow, before) << "seed " << seed;
    ASSERT_TRUE(std::ranges::is_permutation(found.order, order)) << "seed " << seed;
    ASSERT_NO_THROW(rewrite(graph, found.order)) << "seed " << seed;
    lower += found.cost.overflow < before ? 1 : 0;

    const int64_t peak = found.cost.peak_bytes;
    flatten(context, found, peak / 2, 50, effort);
    ASSERT_LE(found.cost.peak_bytes, peak) << "seed " << seed;
    ASSERT_NO_THROW(rewrite(graph, found.order)) << "seed " << seed;
  }
  EXPECT_GT(lower, graphs / 10);
}

}  // namespace reorder_test
}  // namespace remat
