// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/context.h"

#include <gtest/gtest.h>

#include "remat/core/graph_text.h"
#include "tests/testing/moving_step.h"

namespace remat {
namespace context_test {

// Against the published sequence of splitmix64 for this seed.
TEST(Random, IsSplitmix64) {
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(Random, StaysInItsRange) {
  Random random(1);
  int below = 0;
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_LT(random.below(7), 7u);
    const double unit = random.unit();
    ASSERT_GE(unit, 0);
    ASSERT_LT(unit, 1);
    below += random.chance(0.25) ? 1 : 0;
  }
  EXPECT_NEAR(below, 250, 60);
}

// x, a, b: 4 + 8 + 8 while f2 runs, and a is there until b2.
constexpr const char* kGraph = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=3 reads=x creates=a:8
op f2 forward kind=k time_ns=5 reads=a creates=b:8
op o1 backward kind=k time_ns=7 reads=b updates=x
op b1 backward kind=k time_ns=7 reads=b,a creates=c:0
output c
)";

TEST(SearchContext, KnowsTheGraph) {
  const Graph graph = parse_graph(kGraph);
  const SearchContext context(graph, {.budget_bytes = 20});
  EXPECT_EQ(context.once_ns, 22);
  EXPECT_EQ(context.rerunnable, (std::vector<uint8_t>{1, 1, 0, 1}));
  ASSERT_EQ(context.maker.size(), context.cost.value_count());
  int made = 0;
  for (size_t v = 0; v < context.maker.size(); ++v) {
    const std::string& name = graph.storage(context.cost.storage(static_cast<int32_t>(v))).name;
    if (name == "x") continue;
    EXPECT_EQ(graph.op(context.maker[v]).creates.size(), 1u);
    EXPECT_EQ(graph.storage(graph.op(context.maker[v]).creates[0]).name, name);
    EXPECT_EQ(context.output[v], name == "c" ? 1 : 0);
    ++made;
  }
  EXPECT_EQ(made, 3);
}

TEST(SearchContext, EvaluatesAndCharges) {
  const Graph graph = parse_graph(kGraph);
  SearchContext context(graph, {.budget_bytes = 20});
  Effort effort;
  const FoundOrder found = context.start({OpId{0}, OpId{1}, OpId{2}, OpId{3}}, effort);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.cost.peak_bytes, 20);
  EXPECT_EQ(found.cost.time_ns, 22);
  context.budget_bytes = 19;
  EXPECT_FALSE(context.start(found.order, effort).fits);
  EXPECT_EQ(context.evaluations, 2);
  EXPECT_EQ(effort.spent(), 2 * 4 * OrderCost::kWorkPerOp);
}

TEST(SearchContext, KnowsTheMovesOfValues) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const SearchContext context(graph, {.budget_bytes = 100});
  ASSERT_EQ(context.moves.size(), context.cost.value_count());
  for (size_t v = 0; v < context.moves.size(); ++v) {
    const auto value = static_cast<OrderCost::ValueIndex>(v);
    const std::string& name = graph.storage(context.cost.storage(value)).name;
    const bool last = context.cost.version(value) == graph.last_version(context.cost.storage(value));
    const MovesOfValue& moves = context.moves[v];
    EXPECT_EQ(moves.pack.has_value(), last && (name == "m" || name == "r")) << name;
    EXPECT_EQ(moves.unpack.has_value(), name == "m") << name;
    EXPECT_EQ(moves.readers.size(), last && name == "r" ? 1u : 0u) << name;
    const bool away = last && (name == "m" || name == "a" || name == "r" || name == "g5" || name == "g3");
    EXPECT_EQ(moves.offload.has_value(), away) << name;
    EXPECT_EQ(moves.prefetch.has_value(), away) << name;
    if (moves.pack) {
      EXPECT_EQ(graph.storage(context.cost.storage(moves.packed)).name, name + "~");
    }
    if (moves.offload) {
      EXPECT_EQ(graph.storage(context.cost.storage(moves.away)).name, name + "^");
    }
  }
  EXPECT_EQ(context.once_ns, 200);  // moves are not ops that run once
}

TEST(SearchContext, KnowsOnlyTheMovesThatAreAskedFor) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  EXPECT_TRUE(SearchContext(graph, {.pack = false, .offload = false}).moves.empty());
  const SearchContext packing(graph, {.rerun = false, .offload = false});
  for (const MovesOfValue& moves : packing.moves) EXPECT_FALSE(moves.offload || moves.prefetch);
  for (const uint8_t rerunnable : packing.rerunnable) EXPECT_EQ(rerunnable, 0);
  const SearchContext offloading(graph, {.pack = false});
  for (const MovesOfValue& moves : offloading.moves) EXPECT_TRUE(!moves.pack && moves.readers.empty());
}

// Where an offload waits, it ends later; not where that would need more than the budget.
TEST(SearchContext, RetimesWhatFits) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=10 reads=x creates=a:40
op f2 forward kind=k time_ns=60 reads=x creates=b:10
op f3 forward kind=k time_ns=60 reads=b creates=c:10
op b1 backward kind=k time_ns=10 reads=c,a creates=d:1
output d
channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0
)");
  const OpId offload{4}, prefetch{5};
  const std::vector<OpId> order = {OpId{0}, offload, OpId{1}, OpId{2}, prefetch, OpId{3}};
  SearchContext context(graph, {.budget_bytes = 1'000});
  Effort effort;
  FoundOrder found = context.start(order, effort);
  EXPECT_EQ(found.cost.time_ns, 140 + 40 + 40);
  context.retime(found, effort);
  EXPECT_EQ(found.cost.time_ns, 140);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.order, (std::vector<OpId>{OpId{0}, OpId{1}, offload, prefetch, OpId{2}, OpId{3}}));
  // At b1 there are 4 + 10 + 40 + 1. With a there at f3, together with b and c, 64.
  context.budget_bytes = 55;
  found = context.start(order, effort);
  ASSERT_TRUE(found.fits);
  context.retime(found, effort);
  EXPECT_EQ(found.order, order);
}

// What fits comes first; of what fits, the faster; of what does not, what needs less.
TEST(FoundOrder, BetterIsFasterWhereBothFit) {
  const auto found = [](bool fits, int64_t time_ns, int64_t peak_bytes) {
    return FoundOrder{.order = {}, .cost = {.peak_bytes = peak_bytes, .time_ns = time_ns}, .fits = fits};
  };
  EXPECT_TRUE(better(found(true, 9, 9), found(false, 1, 1)));
  EXPECT_FALSE(better(found(false, 1, 1), found(true, 9, 9)));
  EXPECT_TRUE(better(found(true, 1, 9), found(true, 2, 1)));
  EXPECT_TRUE(better(found(false, 9, 1), found(false, 1, 2)));
  EXPECT_FALSE(better(found(true, 1, 1), found(true, 1, 2))) << "equally good";
}

TEST(OtherBudget, HoldsWhileItLives) {
  const Graph graph = parse_graph("remat-graph 1\nop f forward kind=k time_ns=1 creates=a:8\noutput a\n");
  SearchContext context(graph, {.budget_bytes = 8});
  Effort effort;
  {
    const OtherBudget less(context, 7);
    EXPECT_FALSE(context.start(given_order(graph), effort).fits);
  }
  EXPECT_EQ(context.budget_bytes, 8);
  EXPECT_TRUE(context.start(given_order(graph), effort).fits);
}

}  // namespace context_test
}  // namespace remat
