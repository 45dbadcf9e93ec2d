// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/anneal.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace {

// p is needed first and last, q in between. To run q's branch first is free; to run p again is not.
constexpr const char* kBranches = R"(remat-graph 1
external x 0 input
op p forward kind=k time_ns=50 reads=x creates=a:100
op p1 forward kind=k time_ns=50 reads=a creates=b:10
op q forward kind=k time_ns=50 reads=x creates=c:100
op q1 forward kind=k time_ns=50 reads=c creates=d:10
op end forward kind=k time_ns=50 reads=a,b,d creates=e:0
output e
)";

// p, p1, then q beside a: 100 + 10 + 100 + 10. With q's branch first: 10 + 100 + 10.
TEST(Anneal, MovesInsteadOfRunningAgain) {
  const Graph graph = parse_graph(kBranches);
  SearchContext context(graph, {.budget_bytes = 120, .seed = 1});
  Effort effort;
  std::vector<OpId> order = {OpId{0}, OpId{1}, OpId{2}, OpId{3}, OpId{0}, OpId{4}};
  FoundOrder found = context.start(order, effort);
  ASSERT_TRUE(found.fits);
  anneal(context, found, 2'000'000, effort);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.cost.time_ns, 250);

  context.keep_order = true;  // then there is no other way
  FoundOrder kept = context.start(order, effort);
  anneal(context, kept, 500'000, effort);
  EXPECT_EQ(kept.cost.time_ns, 300);
}

TEST(Anneal, KeepsTheBestThatFits) {
  int64_t faster = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(100));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    Effort effort;
    SearchContext context(graph, {.seed = seed});
    const std::vector<OpId> order = testing::random_order(generator, graph, 10);
    context.budget_bytes = context.start(order, effort).cost.peak_bytes;
    FoundOrder found = context.start(order, effort);
    const int64_t before_ns = found.cost.time_ns;
    anneal(context, found, 300'000, effort);
    ASSERT_TRUE(found.fits) << "seed " << seed;
    ASSERT_LE(found.cost.time_ns, before_ns) << "seed " << seed;
    const auto violation = verify(graph, rewrite(graph, found.order), context.budget_bytes);
    ASSERT_FALSE(violation) << "seed " << seed << ": " << violation->reason;
    faster += found.cost.time_ns < before_ns ? 1 : 0;
  }
  EXPECT_GT(faster, graphs / 20);
}

}  // namespace
}  // namespace remat
