// SPDX-License-Identifier: Apache-2.0
#include "remat/report/op_costs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remat/core/graph_text.h"

namespace remat {
namespace op_costs_test {

// a is made by conv (ns 0 to 5), changed by relu_ (5 to 7), read by fc (7 to 10) and again from ns 20 on;
// y does not outlive forward.
constexpr const char* kStep = R"(remat-graph 1
external x 10 input
op conv forward kind=aten::f time_ns=5 reads=x creates=a:40,m:4
op relu_ forward kind=aten::f time_ns=2 updates=a
op fc forward kind=aten::f time_ns=3 reads=a creates=y:30
op loss forward kind=aten::f time_ns=10 reads=y creates=l:1
op d_fc backward kind=aten::d time_ns=4 reads=l,a creates=d:8
op d_conv backward kind=aten::d time_ns=4 reads=d,m creates=g:2
op d_last backward kind=aten::d time_ns=4 reads=g,a creates=h:2
output h
)";

TEST(OpCosts, OfWhatIsSavedForBackward) {
  const std::vector<OpCost> costs = op_costs(parse_graph(kStep));
  const OpCost& conv = costs[0];
  EXPECT_EQ(conv.created_bytes, 44);
  EXPECT_EQ(conv.saved_bytes, 44);
  EXPECT_EQ(conv.first_forward_use, OpId{1});
  EXPECT_EQ(conv.last_forward_use, OpId{2});
  EXPECT_EQ(conv.first_backward_use, OpId{4});
  EXPECT_EQ(conv.last_backward_use, OpId{6});
  // a from 10 to 20; m, which nothing reads in forward, from 5 to 24.
  EXPECT_EQ(conv.idle_ns, 19);
  EXPECT_EQ(conv.remake_ns, 5 + 2) << "conv once for both of its results, and relu_";
}

TEST(OpCosts, OfWhatIsNot) {
  const std::vector<OpCost> costs = op_costs(parse_graph(kStep));
  EXPECT_EQ(costs[2].created_bytes, 30);
  EXPECT_EQ(costs[2].saved_bytes, 0);
  EXPECT_EQ(costs[2].remake_ns, 0);
  EXPECT_EQ(costs[2].first_backward_use, std::nullopt);
  EXPECT_EQ(costs[4].saved_bytes, 0) << "made in backward";
  EXPECT_TRUE(cost_json(costs[2]).at("saved_bytes_per_ms").is_null());
}

TEST(OpCosts, SeveralOpsAsOne) {
  const std::vector<OpCost> costs = op_costs(parse_graph(kStep));
  OpCost sum = costs[3];
  sum.add(costs[0]);
  EXPECT_EQ(sum.saved_bytes, 45);
  EXPECT_EQ(sum.remake_ns, 17);
  EXPECT_EQ(sum.idle_ns, 19);
  EXPECT_EQ(sum.first_backward_use, OpId{4});
  EXPECT_DOUBLE_EQ(cost_json(sum).at("saved_bytes_per_ms").get<double>(), 45e6 / 17);
}

}  // namespace op_costs_test
}  // namespace remat
