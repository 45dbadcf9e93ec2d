// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/operands.h"

#include <gtest/gtest.h>

#include "remat/core/graph_text.h"

namespace remat {
namespace operands_test {

class Operands : public ::testing::Test {
 protected:
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f forward kind=k time_ns=1 reads=x creates=a:8,b:16
op g forward kind=k time_ns=1 updates=a
op h forward kind=k time_ns=1 workspace=100 reads=a,b,a,x updates=a creates=c:32 reuse=c<b,c<x
)");
  const Op& h = graph.ops[2];
  const StorageId a = graph.ops[0].creates[0];
  const StorageId b = graph.ops[0].creates[1];
};

TEST_F(Operands, AreCountedOnceAndWithoutExternals) {
  EXPECT_EQ(internal_inputs(graph, h), (std::vector<Value>{{a, 1}, {b, 0}}));
  EXPECT_EQ(bytes_while_running(graph, h), 100 + 8 + 16 + 32);
}

TEST_F(Operands, ShareTheSmallerSizeAndNothingWithExternals) {
  EXPECT_EQ(shared_bytes(graph, h.reuse[0]), 16);
  EXPECT_EQ(shared_bytes(graph, h.reuse[1]), 0);
  EXPECT_EQ(source_of(h, h.reuse[0]), (Value{b, 0}));
}

TEST_F(Operands, KnowTheOpThatMakesAValue) {
  EXPECT_EQ(maker(graph, {a, 0}), OpId{0});
  EXPECT_EQ(maker(graph, {a, 1}), OpId{1});
  EXPECT_EQ(maker(graph, {a, 2}), OpId{2});
  EXPECT_EQ(maker(graph, {b, 0}), OpId{0});
}

// a has three versions, b and c one each.
TEST_F(Operands, AreNumberedVersionByVersion) {
  const ValueNumbers values(graph);
  ASSERT_EQ(values.size(), 5u);
  for (size_t v = 0; v < values.size(); ++v) EXPECT_EQ(values.of(values[v]), v);
  EXPECT_EQ(values.of({a, 1}), values.of({a, 0}) + 1);
  EXPECT_EQ(values.most_copies(values.of({a, 0})), 3);
  EXPECT_EQ(values.most_copies(values.of({a, 2})), 1);
}

}  // namespace operands_test
}  // namespace remat
