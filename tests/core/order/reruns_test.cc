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
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace reruns_test {

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
  const OrderCost cost(graph);
  Effort effort;
  const auto erased = [&](std::vector<OpId> order) {
    erase_dead(graph, cost, order, effort);
    return order;
  };
  // f1 again is used by nobody: f2 is re-run from nothing. Then f0 again is of no use either.
  EXPECT_EQ(erased(ops({0, 1, 2, 3, 0, 1})), ops({0, 1, 2, 3}));
  // The second of three runs of f0 serves nobody: the third one comes before its first use.
  EXPECT_EQ(erased(ops({0, 1, 0, 0, 2, 3})), ops({0, 1, 0, 2, 3}));
  // All of these are used.
  EXPECT_EQ(erased(ops({0, 1, 0, 1, 2, 3})), ops({0, 1, 0, 1, 2, 3}));
}

// What an op makes in place keeps it alive, and through it the op that makes what it writes over.
TEST(Reruns, ThoseInPlaceServeWhoReadsTheirVersion) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f0 forward kind=k time_ns=1 reads=x creates=a:8
op relu_ forward kind=k time_ns=1 updates=a
op f2 forward kind=k time_ns=1 reads=a creates=b:8
op f3 forward kind=k time_ns=1 reads=a,b creates=d:8
output d
)");
  const OrderCost cost(graph);
  Effort effort;
  const auto erased = [&](std::vector<OpId> order) {
    erase_dead(graph, cost, order, effort);
    return order;
  };
  EXPECT_EQ(erased(ops({0, 1, 2, 0, 1, 3})), ops({0, 1, 2, 0, 1, 3}));
  EXPECT_EQ(erased(ops({0, 1, 2, 3, 0, 1})), ops({0, 1, 2, 3}));
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
    erase_dead(graph, context.cost, order, effort);
    const OrderCost::Result after = context.evaluate(order, effort);
    ASSERT_TRUE(after.legal) << "seed " << seed;
    ASSERT_LE(after.peak_bytes, before.peak_bytes) << "seed " << seed;
    ASSERT_FALSE(verify(graph, rewrite(graph, order), kAnyPeak)) << "seed " << seed;
    erased += static_cast<int64_t>(length - order.size());
  }
  EXPECT_GT(erased, graphs);
}

TEST(Reruns, NeedlessOnesAreTriedAsListed) {
  const Graph graph = parse_graph(kChain);
  std::vector<OpId> order = ops({0, 1, 0, 2, 1, 0, 3});
  // Good as long as there are five left: the first two that are listed go.
  Effort effort;
  EXPECT_TRUE(erase_needless(graph, order, std::vector<size_t>{5, 2, 4}, effort,
                             [](const std::vector<OpId>& rest) { return rest.size() >= 5; }));
  EXPECT_EQ(order, ops({0, 1, 2, 1, 3}));
  EXPECT_FALSE(erase_needless(graph, order, std::vector<size_t>{3}, effort,
                              [](const std::vector<OpId>& rest) { return rest.size() >= 5; }));
  EXPECT_EQ(order, ops({0, 1, 2, 1, 3}));
}

// A chain at a low budget has tens of thousands of re-runs: going through them all, each with a copy of the
// order, took a minute after the search was told to stop.
TEST(Reruns, NothingIsTriedWithoutEffort) {
  const Graph graph = parse_graph(kChain);
  std::vector<OpId> order = ops({0, 1, 0, 2});
  Effort none(0.0);
  int tries = 0;
  EXPECT_FALSE(erase_needless(graph, order, std::vector<size_t>{2}, none, [&](const std::vector<OpId>&) {
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

// a can be packed, for g too, and offloaded: moves 3 (pack), 4 (unpack), 5 (read_packed g), 6 (offload) and
// 7 (prefetch).
constexpr const char* kMoves = R"(remat-graph 1
external x 4 input
op f forward kind=k time_ns=9 reads=x creates=a:8
op s forward kind=k time_ns=9 reads=x creates=b:8
op g forward kind=k time_ns=9 reads=a,b creates=c:8
output c
packed a rule=r bytes=1 pack_ns=1 unpack_ns=1 readers=g
channel write_bytes_per_s=8000000000 read_bytes_per_s=8000000000 latency_ns=0
)";

TEST(Reruns, AreWhatBringsAValueBackToo) {
  const Graph graph = parse_graph(kMoves);
  EXPECT_EQ(reruns_of(graph, ops({0, 3, 1, 4, 2})), (std::vector<size_t>{3}));
  EXPECT_EQ(reruns_of(graph, ops({0, 3, 1, 5})), (std::vector<size_t>{3}));
  EXPECT_EQ(reruns_of(graph, ops({0, 6, 1, 7, 2})), (std::vector<size_t>{3}));
  EXPECT_EQ(reruns_of(graph, ops({0, 3, 1, 5, 0, 2})), (std::vector<size_t>{3, 4, 5}));
  EXPECT_TRUE(reruns_of(graph, ops({0, 3, 6, 1, 2})).empty());
}

TEST(Reruns, WithoutAReaderTheOpReadsTheValue) {
  const Graph graph = parse_graph(kMoves);
  EXPECT_EQ(without(graph, ops({0, 3, 1, 5}), {false, false, false, true}), ops({0, 3, 1, 2}));
  EXPECT_EQ(without(graph, ops({0, 3, 1, 4, 2}), {false, false, false, true, false}), ops({0, 3, 1, 2}));
}

TEST(Reruns, DeadMovesGo) {
  const Graph graph = parse_graph(kMoves);
  const SearchContext context(graph, {});
  Effort effort;
  const auto erased = [&](std::vector<OpId> order) {
    erase_dead(graph, context.cost, order, effort);
    return order;
  };
  EXPECT_EQ(erased(ops({0, 3, 1, 2})), ops({0, 1, 2}));                // a pack that nobody reads
  EXPECT_EQ(erased(ops({0, 3, 1, 2, 4})), ops({0, 1, 2}));             // and an unpack for nobody
  EXPECT_EQ(erased(ops({0, 6, 1, 0, 2})), ops({0, 1, 0, 2}));          // an offload that nobody brings back
  EXPECT_EQ(erased(ops({0, 3, 1, 5})), ops({0, 3, 1, 5}));             // an op that reads packed bytes runs
  EXPECT_EQ(erased(ops({0, 6, 1, 7, 2})), ops({0, 6, 1, 7, 2}));
}

TEST(Reruns, DeadMovesCostTimeAndServeNothing) {
  int64_t erased = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(500));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    SearchContext context(graph, {});
    Effort effort;
    std::vector<OpId> order =
        testing::with_random_moves(generator, graph, testing::random_order(generator, graph, 10), 30);
    const OrderCost::Result before = context.evaluate(order, effort);
    const size_t length = order.size();
    erase_dead(graph, context.cost, order, effort);
    const OrderCost::Result after = context.evaluate(order, effort);
    ASSERT_TRUE(after.legal) << "seed " << seed;
    ASSERT_LE(after.peak_bytes, before.peak_bytes) << "seed " << seed;
    ASSERT_FALSE(verify(graph, rewrite(graph, order), kAnyPeak)) << "seed " << seed;
    erased += static_cast<int64_t>(length - order.size());
  }
  EXPECT_GT(erased, graphs);
}

// Without a away, packed or made again: 4 + 8 + 8 + 8 at g.
TEST(Reruns, MovesArePrunedToWhatIsNeededToFit) {
  const Graph graph = parse_graph(kMoves);
  for (const std::vector<OpId>& order : {ops({0, 3, 1, 4, 2}), ops({0, 3, 1, 5}), ops({0, 6, 1, 7, 2}),
                                         ops({0, 3, 1, 0, 4, 2})}) {
    SearchContext context(graph, {.budget_bytes = 28});
    Effort effort;
    FoundOrder found = context.start(order, effort);
    ASSERT_TRUE(found.fits);
    prune(context, found, found.order.size(), effort);
    EXPECT_TRUE(found.fits);
    EXPECT_EQ(found.order, ops({0, 1, 2}));
    EXPECT_EQ(found.cost.time_ns, 27);
  }
}

}  // namespace reruns_test
}  // namespace remat
