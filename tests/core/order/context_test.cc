// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/context.h"

#include <gtest/gtest.h>

#include "remat/core/graph_text.h"

namespace remat {
namespace {

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

}  // namespace
}  // namespace remat
