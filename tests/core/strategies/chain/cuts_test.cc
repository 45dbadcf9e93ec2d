// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/chain/cuts.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "remat/core/graph_text.h"
#include "tests/testing/chain_graphs.h"

namespace remat::detail {
namespace cuts_test {

std::vector<int32_t> forward_positions(const std::vector<ChainCut>& cuts) {
  std::vector<int32_t> positions;
  for (const ChainCut& cut : cuts) positions.push_back(cut.forward);
  return positions;
}

// conv norm relu_ add, four times: between norm and relu_ there is no cut.
TEST(ChainCuts, ResidualBlocks) {
  const Graph graph = testing::residual_graph(4);
  const OrderCost cost(graph);
  const ForwardFacts facts = forward_facts(graph, cost, false);
  EXPECT_EQ(facts.turn, 16);
  const std::vector<ChainCut> cuts = chain_cuts(graph, facts);
  EXPECT_EQ(forward_positions(cuts),
            (std::vector<int32_t>{0, 1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 16}));
  // Backward of a block is d_relu, d_norm, d_conv, and blocks are undone in reverse: 16 is the loss.
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i].forward % 4 == 0) {
      EXPECT_EQ(cuts[i].backward, 17 + 3 * (16 - cuts[i].forward) / 4) << cuts[i].forward;
    }
  }
}

TEST(ChainCuts, FewerKeepTheCheapOnes) {
  const Graph graph = testing::residual_graph(8);
  const OrderCost cost(graph);
  const ForwardFacts facts = forward_facts(graph, cost, false);
  const auto cuts = fewer_cuts(facts, chain_cuts(graph, facts), 10);
  ASSERT_EQ(cuts.size(), 10u);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) EXPECT_EQ(cuts[i].forward % 4, 0) << i;
}

// One value crosses each position of a plain chain; in a U the skips of all levels do.
TEST(ChainCuts, BundlesOfLongSkipsAreLarger) {
  const auto sizes = [](const Graph& graph) {
    const OrderCost cost(graph);
    return bundle_sizes(forward_facts(graph, cost, false));
  };
  EXPECT_EQ(sizes(testing::chain_graph(std::vector<testing::Layer>(12))), 11);
  EXPECT_GT(sizes(testing::u_shaped_graph(6)), 3 * 12);
}

// norm must not be re-run, so that what it makes is kept; what relu_ makes of it in place, too.
TEST(ForwardFacts, WhatMustNotBeRunAgainIsKept) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
external w 8 param
op conv forward kind=k time_ns=1 reads=x,w creates=a:80
op norm forward kind=k time_ns=1 reads=a creates=b:40 once
op relu forward kind=k time_ns=1 updates=b
op turn backward kind=k time_ns=1 reads=b creates=g:8
op step backward kind=k time_ns=1 reads=g updates=w
op back backward kind=k time_ns=1 reads=g,a,b creates=h:8
output h
)");
  const OrderCost cost(graph);
  const ForwardFacts loose = forward_facts(graph, cost, false);
  EXPECT_EQ(loose.turn, 3);
  EXPECT_TRUE(loose.again[0]);
  EXPECT_FALSE(loose.again[1]);
  EXPECT_FALSE(loose.again[2]);
  EXPECT_EQ(loose.kept_bytes, 40);
  ASSERT_EQ(loose.storages.size(), 1u);
  EXPECT_EQ(graph.storage(loose.storages[0].storage).name, "a");
  EXPECT_EQ(loose.storages[0].last_forward, 1);
  EXPECT_EQ(loose.storages[0].first_backward, 5);
  // conv reads w, which the step changes inside backward.
  EXPECT_FALSE(forward_facts(graph, cost, true).again[0]);
}

}  // namespace cuts_test
}  // namespace remat::detail
