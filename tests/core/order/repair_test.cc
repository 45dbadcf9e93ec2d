// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/repair.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"

namespace remat {
namespace repair_test {

// 4 + 24 at the turn; with 20, one of a and b must be made again: 3 ns or 50.
TEST(Repair, RecomputesTheCheapOne) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=3 reads=x creates=a:8
op f2 forward kind=k time_ns=50 reads=a creates=b:8
op f3 forward kind=k time_ns=5 reads=b creates=c:8
op b3 backward kind=k time_ns=5 reads=c,b creates=g:0
op b1 backward kind=k time_ns=5 reads=g,a creates=h:0
output h
)");
  SearchContext context(graph, {.budget_bytes = 20});
  Effort effort;
  FoundOrder found = context.start(given_order(graph), effort);
  ASSERT_FALSE(found.fits);
  EXPECT_TRUE(Repair(context, effort).run(found));
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.cost.time_ns, 68 + 3);

  // f1 must not run again: then nothing helps, since b is needed as soon as c is there.
  FoundOrder stuck = context.start(given_order(graph), effort);
  EXPECT_FALSE(Repair(context, effort).step(stuck, {.tabu = OpId{0}}));
  context.budget_bytes = 19;  // below what f3 needs
  EXPECT_FALSE(Repair(context, effort).run(stuck));
}

// The same with moves, whose kinds can be left out one by one. 4 + 24 at f3 in the given order.
TEST(Repair, TakesTheMoveThatCostsLeast) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=30 reads=x creates=a:8
op f2 forward kind=k time_ns=50 reads=a creates=b:8
op f3 forward kind=k time_ns=5 reads=b creates=c:8
op b3 backward kind=k time_ns=50 reads=c,b creates=g:0
op b1 backward kind=k time_ns=5 reads=g,a creates=h:0
output h
packed a rule=r bytes=0 pack_ns=2 unpack_ns=3
channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0
)");
  const auto extra_ns = [&](bool rerun, bool pack, bool offload) {
    SearchContext context(graph, {.budget_bytes = 20, .rerun = rerun, .pack = pack, .offload = offload});
    Effort effort;
    FoundOrder found = context.start(given_order(graph), effort);
    if (!Repair(context, effort).run(found)) return int64_t{-1};
    EXPECT_FALSE(verify(graph, rewrite(graph, found.order), 20));
    return found.cost.time_ns - context.once_ns;
  };
  EXPECT_EQ(extra_ns(true, false, false), 30);
  EXPECT_EQ(extra_ns(false, true, false), 2 + 3);
  EXPECT_EQ(extra_ns(false, false, true), 8 + 8);  // f3 waits for the write, b1 for the read
  EXPECT_EQ(extra_ns(true, true, true), 5);
  EXPECT_EQ(extra_ns(false, false, false), -1);
}

TEST(Repair, IsRightOnRandomGraphsWithMoves) {
  int64_t fits = 0, stuck = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(200));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    Effort effort;
    SearchContext context(graph, {.seed = seed, .rerun = seed % 3 != 0});
    const int64_t peak = context.start(given_order(graph), effort).cost.peak_bytes;
    context.budget_bytes = peak * 7 / 10;
    FoundOrder found = context.start(given_order(graph), effort);
    const double before = found.cost.overflow;
    Effort own = effort.part(2'000'000);
    const bool said = Repair(context, own).run(found);
    ASSERT_EQ(said, found.fits) << "seed " << seed;
    ASSERT_LE(found.cost.overflow, before) << "seed " << seed;
    ASSERT_EQ(!verify(graph, rewrite(graph, found.order), context.budget_bytes), said) << "seed " << seed;
    ++(said ? fits : stuck);
  }
  EXPECT_GT(fits, graphs / 10);
  EXPECT_GT(stuck, graphs / 60);
}

// It says that an order fits if and only if verify does.
TEST(Repair, IsRightOnRandomGraphs) {
  int64_t fits = 0, stuck = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(300));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    Effort effort;
    SearchContext context(graph, {.seed = seed});
    const int64_t peak = context.start(given_order(graph), effort).cost.peak_bytes;
    context.budget_bytes = peak * 8 / 10;
    FoundOrder found = context.start(given_order(graph), effort);
    const double before = found.cost.overflow;
    Effort own = effort.part(2'000'000);
    const bool said = Repair(context, own).run(found);
    ASSERT_EQ(said, found.fits) << "seed " << seed;
    ASSERT_LE(found.cost.overflow, before) << "seed " << seed;
    ASSERT_EQ(!verify(graph, rewrite(graph, found.order), context.budget_bytes), said)
        << "seed " << seed;
    ++(said ? fits : stuck);
  }
  EXPECT_GT(fits, graphs / 10);
  EXPECT_GT(stuck, graphs / 60);
}

TEST(Repair, EndsWithItsEffort) {
  std::mt19937_64 generator(3);
  const Graph graph = testing::random_graph(generator);
  SearchContext context(graph, {.budget_bytes = 1});
  Effort effort;
  FoundOrder found = context.start(given_order(graph), effort);
  Effort none = effort.part(0);
  EXPECT_FALSE(Repair(context, none).run(found));
  EXPECT_EQ(none.spent(), 0);
  EXPECT_EQ(found.order, given_order(graph));
}

}  // namespace repair_test
}  // namespace remat
