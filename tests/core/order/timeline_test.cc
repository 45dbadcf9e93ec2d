// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/timeline.h"

#include <gtest/gtest.h>

#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/moves.h"

namespace remat {
namespace timeline_test {

// f g f h: a is made at 0 and 2, and used at 1 and 3.
TEST(OrderTimeline, KnowsWhereAValueIsMadeAndUsed) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f forward kind=k time_ns=1 reads=x creates=a:8
op g forward kind=k time_ns=1 reads=a creates=b:8
op h forward kind=k time_ns=1 reads=a creates=c:8
output b
output c
)");
  const OrderCost cost(graph);
  const OrderCost::ValueIndex a = cost.creates(OpId{0})[0];
  OrderTimeline timeline;
  timeline.build(cost, std::vector<OpId>{OpId{0}, OpId{1}, OpId{0}, OpId{2}});
  const auto events = timeline.events(a);
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(events[i].position, static_cast<int32_t>(i));
    EXPECT_EQ(events[i].makes, i % 2 == 0);
  }
  EXPECT_EQ(timeline.next(a, 1)->position, 1);
  EXPECT_EQ(timeline.next(a, 4), events.end());
  EXPECT_FALSE(timeline.alive(a, 0));
  EXPECT_TRUE(timeline.alive(a, 1));
  EXPECT_FALSE(timeline.alive(a, 2));  // it is made anew before it is used
  EXPECT_TRUE(timeline.alive(a, 3));
}

TEST(OrderTimeline, TakesAnUpdateForAUseAndAMake) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f forward kind=k time_ns=1 reads=x creates=a:8
op g forward kind=k time_ns=1 updates=a
output a
)");
  const OrderCost cost(graph);
  const OrderCost::Update update = cost.updates(OpId{1})[0];
  OrderTimeline timeline;
  timeline.build(cost, std::vector<OpId>{OpId{0}, OpId{1}});
  EXPECT_TRUE(timeline.alive(update.before, 1));
  ASSERT_EQ(timeline.events(update.after).size(), 1u);
  EXPECT_TRUE(timeline.events(update.after)[0].makes);
}

// f, pack a, unpack a, g: the value is used by the pack and made again by the unpack.
TEST(OrderTimeline, TakesMovesForUsesAndMakes) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f forward kind=k time_ns=1 reads=x creates=a:8
op g forward kind=k time_ns=1 reads=a creates=b:8
output b
packed a rule=r bytes=1 pack_ns=1 unpack_ns=1 readers=g
)");
  const OrderCost cost(graph);
  const OpId pack{2}, unpack{3}, reader{4};
  ASSERT_EQ(graph.move(reader).kind, MoveKind::read_packed);
  const OrderCost::ValueIndex a = cost.creates(OpId{0})[0];
  const OrderCost::ValueIndex packed = cost.creates(pack)[0];
  OrderTimeline timeline;
  timeline.build(cost, std::vector<OpId>{OpId{0}, pack, unpack, OpId{1}});
  ASSERT_EQ(timeline.events(a).size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(timeline.events(a)[i].makes, i % 2 == 0) << i;
  EXPECT_FALSE(timeline.alive(a, 2));
  EXPECT_TRUE(timeline.alive(packed, 2));
  EXPECT_FALSE(timeline.alive(packed, 3));
  // In place of g: the value is not used any more.
  timeline.build(cost, std::vector<OpId>{OpId{0}, pack, reader});
  EXPECT_EQ(timeline.events(a).size(), 2u);
  EXPECT_TRUE(timeline.alive(packed, 2));
}

}  // namespace timeline_test
}  // namespace remat
