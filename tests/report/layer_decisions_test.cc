// SPDX-License-Identifier: Apache-2.0
#include "remat/report/layer_decisions.h"

#include <gtest/gtest.h>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"

namespace remat {
namespace layer_decisions_test {

// a and b are idle while i runs.
constexpr const char* kStep = R"(remat-graph 1
external x 10 input
op f forward kind=f time_ns=7 reads=x creates=a:40 scope=first.one
op g forward kind=g time_ns=5 reads=a creates=b:4 scope=second.one
op h forward kind=h time_ns=5 reads=b creates=c:30 scope=second.two
op i forward kind=i time_ns=5 reads=c creates=e:1 scope=second.two
op dh backward kind=d time_ns=5 reads=e,b creates=dc:1 scope=second.two
op df backward kind=d time_ns=5 reads=dc,a creates=da:2 scope=first.one
output da
)";

TEST(LayerDecisions, OfAPlanThatMakesAAgain) {
  const Graph graph = parse_graph(kStep);
  // keep-all needs 85 at i (x, a, b, c, e); without a it is 54 at g.
  const Plan made = plan(graph, {.budget_bytes = 60});
  ASSERT_TRUE(made.feasible);
  ASSERT_FALSE(verify(graph, rewrite(graph, made.order), 60));
  const auto layers = decisions_by_layer(graph, made, explain(graph, made), 1);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].layer, "first");
  EXPECT_EQ(layers[0].recomputed_values, 1);
  EXPECT_EQ(layers[0].recomputed_bytes, 40);
  EXPECT_EQ(layers[0].recomputed_ops, 1);
  EXPECT_EQ(layers[0].extra_ns, 7);
  EXPECT_EQ(layers[1].layer, "second");
  EXPECT_EQ(layers[1].kept_bytes, 4);
  const std::string text = layer_decisions_text(layers);
  EXPECT_NE(text.find("all layers  1 (4 B)    1 (40 B)              1        7 ns"), std::string::npos) << text;
  EXPECT_EQ(decisions_by_layer(graph, made, explain(graph, made), 0).front().layer, "first.one");
}

TEST(LayerDecisions, OfNothing) {
  EXPECT_TRUE(decisions_by_layer(Graph{}, Plan{}, {}, 2).empty());
}

}  // namespace layer_decisions_test
}  // namespace remat
