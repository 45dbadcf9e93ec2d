// SPDX-License-Identifier: Apache-2.0
#include "remat/report/dot.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "remat/core/error.h"
#include "remat/core/graph_builder.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/moving_step.h"

namespace remat {
namespace dot_test {

Graph named(const std::string& op, const std::string& scope) {
  GraphBuilder builder;
  builder.external("x", 8, Role::input);
  builder.op({.name = op, .kind = "k", .time_ns = 5, .reads = {"x"}, .creates = {{"a", 8}}, .scope = scope});
  builder.output("a");
  return std::move(builder).build();
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Dot, EscapesNames) {
  Graph graph = named("f", "l\"1");
  graph.ops[0].name = "f\"\\ \n \xc3\xbc \xff";  // as a language around the step may name it
  const std::string dot = graph_dot(graph, {0, 1});
  EXPECT_TRUE(holds(dot, "label=\"f\\\"\\\\ \\n \xc3\xbc \xef\xbf\xbd\\nk, 5 ns\"")) << dot;
  EXPECT_TRUE(holds(dot, "label=\"l\\\"1, forward\"")) << dot;
}

TEST(Dot, OpsWithoutALayerHaveNoBox) {
  EXPECT_FALSE(holds(graph_dot(named("f", ""), {0, 1}), "cluster"));
}

TEST(Dot, SaysHowOftenAnOpRuns) {
  const Graph graph = named("f", "l");
  EXPECT_TRUE(holds(graph_dot(graph, {0, 1}, {OpId{0}, OpId{0}, OpId{0}}), "runs 3 times"));
  EXPECT_FALSE(holds(graph_dot(graph, {0, 1}, {OpId{0}}), "runs"));
}

// Moves stand in an order with numbers after the ops: they were counted beyond the end of the ops.
TEST(Dot, MovesAreNoRunsButReadingPackedBytesIs) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  std::vector<OpId> order = order_of(graph, parse_schedule(testing::kMovingStepSchedule, graph));
  ASSERT_TRUE(std::ranges::any_of(order, [&](OpId op) { return graph.is_move(op); }));
  const std::string once = graph_dot(graph, {0, graph.ops.size()}, order);
  EXPECT_FALSE(holds(once, "runs"));
  // b5 reads r packed: what stands in the order is another form of it.
  const auto packed = std::ranges::find_if(order, [&](OpId op) { return graph.original(op) != op; });
  ASSERT_NE(packed, order.end());
  order.push_back(*packed);
  for (int more = 0; more < 1000; ++more) order.push_back(OpId{static_cast<int32_t>(graph.op_count() - 1)});
  const std::string twice = graph_dot(graph, {0, graph.ops.size()}, order);
  EXPECT_TRUE(holds(twice, "b5\\nk, 40 ns\\nruns 2 times")) << twice;
}

TEST(Dot, RangesByNameAndNumber) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
op a:b forward kind=k time_ns=1 reads=x creates=v:8
op 0 forward kind=k time_ns=1 reads=v creates=w:8
op c forward kind=k time_ns=1 reads=w creates=y:8
output y
)");
  EXPECT_EQ(parse_op_range(graph, ""), (OpRange{0, 3}));
  EXPECT_EQ(parse_op_range(graph, "a:b"), (OpRange{0, 1}));  // a name that holds a colon
  EXPECT_EQ(parse_op_range(graph, "a:b:c"), (OpRange{0, 3}));
  EXPECT_EQ(parse_op_range(graph, "0:c"), (OpRange{1, 3}));  // a name comes before a number
  EXPECT_EQ(parse_op_range(graph, "1:"), (OpRange{1, 3}));
  EXPECT_EQ(parse_op_range(graph, ":1"), (OpRange{0, 2}));
  EXPECT_THROW(parse_op_range(graph, "c:a:b"), Error);
  EXPECT_THROW(parse_op_range(graph, "3"), Error);
  EXPECT_THROW(parse_op_range(Graph{}, ":"), Error);
  EXPECT_EQ(parse_op_range(Graph{}, ""), (OpRange{0, 0}));
}

}  // namespace dot_test
}  // namespace remat
