// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/reruns.h"

#include <gtest/gtest.h>

#include <limits>
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

constexpr int64_t kAnyPeak = std::numeric_limits<int64_t>::max();

// A chain f0, f1, f2 and an op that needs all of it.
constexpr const char* kChain = R"(remat-graph 1
external x 4 input
op f0 forward kind=k time_ns=1 reads=x creates=a:8
op f1 forward kind=k time_ns=1 reads=a creates=b:8
op f2 forward kind=k time_ns=1 reads=b creates=c:8
op f3 forward kind=k time_ns=1 reads=a,b,c creates=d:8
output d
)";

std::vector<OpId> ops(std::initializer_list<int> numbers) {
  std::vector<OpId> order;
  for (const int number : numbers) order.push_back(static_cast<OpId>(number));
  return order;
}

TEST(Reruns, AreLaterOccurrences) {
  const Graph graph = parse_graph(kChain);
  EXPECT_EQ(reruns_of(graph, ops({0, 1, 0, 2, 1, 0, 3})), (std::vector<size_t>{2, 4, 5}));
  EXPECT_TRUE(reruns_of(graph, ops({0, 1, 2, 3})).empty());
}

TEST(Reruns, DeadOnesGoWithWhatServedThemOnly) {
  const Graph graph = parse_graph(kChain);
  const SearchContext context(graph, {});
  Effort effort;
  const auto erased = [&](std::vector<OpId> order) {
    erase_dead(context, order, effort);
    return order;
  };
  // f1 again is used by nobody: f2 is re-run from nothing. Then f0 again is of no use either.
  EXPECT_EQ(erased(ops({0, 1, 2, 3, 0, 1})), ops({0, 1, 2, 3}));
  // The second of three runs of f0 serves nobody: the third one comes before its first use.
  EXPECT_EQ(erased(ops({0, 1, 0, 0, 2, 3})), ops({0, 1, 0, 2, 3}));
  // All of these are used.
  EXPECT_EQ(erased(ops({0, 1, 0, 1, 2, 3})), ops({0, 1, 0, 1, 2, 3}));
}

TEST(Reruns, DeadOnesCostTimeAndServeNothing) {
  int64_t erased = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(500));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    SearchContext context(graph, {});
    Effort effort;
    std::vector<OpId> order = testing::random_order(generator, graph, 20);
    const OrderCost::Result before = context.evaluate(order, effort);
    const size_t length = order.size();
    erase_dead(context, order, effort);
    const OrderCost::Result after = context.evaluate(order, effort);
    ASSERT_TRUE(after.legal) << "seed " << seed;
    ASSERT_LE(after.peak_bytes, before.peak_bytes) << "seed " << seed;
    ASSERT_FALSE(verify(graph, rewrite(graph, order), kAnyPeak)) << "seed " << seed;
    erased += static_cast<int64_t>(length - order.size());
  }
  EXPECT_GT(erased, graphs);
}

TEST(Reruns, NeedlessOnesAreTriedAsListed) {
  std::vector<OpId> order = ops({0, 1, 0, 2, 1, 0, 3});
  // Good as long as there are five left: the first two that are listed go.
  Effort effort;
  EXPECT_TRUE(erase_needless(order, std::vector<size_t>{5, 2, 4}, effort,
                             [](const std::vector<OpId>& rest) { return rest.size() >= 5; }));
  EXPECT_EQ(order, ops({0, 1, 2, 1, 3}));
  EXPECT_FALSE(erase_needless(order, std::vector<size_t>{3}, effort,
                              [](const std::vector<OpId>& rest) { return rest.size() >= 5; }));
  EXPECT_EQ(order, ops({0, 1, 2, 1, 3}));
}

// A chain at a low budget has tens of thousands of re-runs: going through them all, each with a copy of the
// order, took a minute after the search was told to stop.
TEST(Reruns, NothingIsTriedWithoutEffort) {
  std::vector<OpId> order = ops({0, 1, 0, 2});
  Effort none(0.0);
  int tries = 0;
  EXPECT_FALSE(erase_needless(order, std::vector<size_t>{2}, none, [&](const std::vector<OpId>&) {
    ++tries;
    return true;
  }));
  EXPECT_EQ(tries, 0);
}

// With a in memory throughout 36 bytes are needed; without, 28, and f0 must be run again.
TEST(Reruns, ArePrunedToWhatIsNeededToFit) {
  const Graph graph = parse_graph(kChain);
  for (const int64_t budget : {36, 100}) {
    SearchContext context(graph, {.budget_bytes = budget});
    Effort effort;
    FoundOrder found = context.start(ops({0, 1, 0, 1, 2, 0, 3}), effort);
    ASSERT_TRUE(found.fits);
    prune(context, found, found.order.size(), effort);
    EXPECT_TRUE(found.fits);
    EXPECT_EQ(found.order, ops({0, 1, 2, 3})) << budget;
    EXPECT_EQ(found.cost.time_ns, 4);
  }
}

}  // namespace
}  // namespace remat
