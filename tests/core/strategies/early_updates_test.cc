// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/early_updates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/strategies/strategies.h"
#include "remat/core/verify.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace early_updates_test {

// Two layers, y = w2 (w1 x); their gradients of 100 bytes are applied at the end.
constexpr const char* kTwoLayers = R"(remat-graph 1
external w1 100 param
external w2 100 param
external x 10 input
op f1 forward kind=k time_ns=5 reads=x,w1 creates=a:10
op f2 forward kind=k time_ns=5 reads=a,w2 creates=b:10
op d2 backward kind=k time_ns=5 reads=b,a creates=g2:100
op e2 backward kind=k time_ns=5 reads=b,w2 creates=da:10
op d1 backward kind=k time_ns=5 reads=da,x creates=g1:100
op u1 optimizer kind=k time_ns=5 reads=g1 updates=w1
op u2 optimizer kind=k time_ns=5 reads=g2 updates=w2
)";

std::vector<std::string> names(const Graph& graph, const std::vector<OpId>& order) {
  std::vector<std::string> found;
  for (const OpId op : order) found.push_back(graph.op(op).name);
  return found;
}

TEST(EarlyUpdates, ComeAsSoonAsNobodyReadsTheParameter) {
  const Graph graph = parse_graph(kTwoLayers);
  const auto order = with_early_updates(graph, given_order(graph));
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(names(graph, *order),
            (std::vector<std::string>{"f1", "f2", "d2", "e2", "u2", "d1", "u1"}));
  // Parameters and x; both gradients, or one and the operands of the op that makes it.
  EXPECT_EQ(simulate_peak(graph, rewrite(graph, given_order(graph))).bytes, 210 + 200 + 10);
  EXPECT_EQ(simulate_peak(graph, rewrite(graph, *order)).bytes, 210 + 100 + 20);
}

// f2 runs again for e2: until then w2 is as it was.
TEST(EarlyUpdates, WaitForReRunsThatReadTheParameter) {
  const Graph graph = parse_graph(kTwoLayers);
  const std::vector<OpId> again = {OpId{0}, OpId{1}, OpId{2}, OpId{0}, OpId{1}, OpId{3}, OpId{4}, OpId{5}, OpId{6}};
  const auto order = with_early_updates(graph, again);
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(names(graph, *order),
            (std::vector<std::string>{"f1", "f2", "d2", "f1", "f2", "e2", "u2", "d1", "u1"}));
  EXPECT_FALSE(verify(graph, rewrite(graph, *order), kNoBudget).has_value());
}

// A parameter that two layers share, which decays before it is updated: once it has, neither could be run again.
TEST(EarlyUpdates, WhatFreesNothingComesWithWhatDoes) {
  const Graph graph = parse_graph(R"(remat-graph 1
external w 100 param
external m 100 optimizer_state
external x 10 input
op f1 forward kind=k time_ns=5 reads=x,w creates=a:50
op f2 forward kind=k time_ns=5 reads=a,w creates=b:50
op d2 backward kind=k time_ns=5 reads=b,w creates=da:50
op g1 backward kind=k time_ns=5 reads=da,a,x creates=g:100
op decay optimizer kind=k time_ns=5 updates=w
op fade optimizer kind=k time_ns=5 updates=m
op mix optimizer kind=k time_ns=5 reads=g updates=m
op root optimizer kind=k time_ns=5 reads=m creates=r:100
op apply optimizer kind=k time_ns=5 reads=r updates=w
op last backward kind=k time_ns=5 reads=da creates=c:10
output c
)");
  std::vector<OpId> late = given_order(graph);
  std::rotate(late.begin() + 4, late.end() - 1, late.end());  // the update is the last
  for (const std::vector<OpId>& from : {given_order(graph), late}) {
    const auto order = with_early_updates(graph, from);
    ASSERT_TRUE(order.has_value());
    const auto place = [&](const char* name) {
      return std::ranges::find(*order, std::string(name), [&](OpId op) { return graph.op(op).name; }) - order->begin();
    };
    // The decay could come as soon as d2 has run.
    EXPECT_GT(place("decay"), place("g1"));
    EXPECT_EQ(place("decay") + 1, place("apply"));
    EXPECT_EQ(place("fade") + 1, place("mix"));
    EXPECT_LT(place("apply"), place("last"));
  }
}

TEST(EarlyGraph, HasTheSameOpsInAnotherOrder) {
  const Graph graph = parse_graph(kTwoLayers);
  const auto early = EarlyGraph::of(graph);
  ASSERT_TRUE(early.has_value());
  EXPECT_EQ(names(early->graph(), given_order(early->graph())),
            (std::vector<std::string>{"f1", "f2", "d2", "e2", "u2", "d1", "u1"}));
  EXPECT_EQ(names(graph, early->original(given_order(early->graph()))),
            names(early->graph(), given_order(early->graph())));
  EXPECT_EQ(keep_all_baseline(early->graph()).time_ns, keep_all_baseline(graph).time_ns);
  EXPECT_FALSE(EarlyGraph::of(early->graph()).has_value());
}

TEST(EarlyUpdates, AreNoneWhereNothingMoves) {
  const Graph graph = parse_graph(kTwoLayers);
  const auto order = with_early_updates(graph, given_order(graph));
  EXPECT_FALSE(with_early_updates(graph, *order).has_value());
  EXPECT_FALSE(with_early_updates(parse_graph("remat-graph 1\n"), {}).has_value());
}

// 210 for the externals, 100 for a gradient, and what makes it. The gradients at once would be 410 and more.
TEST(EarlyUpdates, BringTheFloorDown) {
  const Graph graph = parse_graph(kTwoLayers);
  EXPECT_LE(floor(graph).bytes, 210 + 100 + 20);
  const Plan found = plan(graph, {.budget_bytes = 330});
  EXPECT_TRUE(found.feasible);
  EXPECT_EQ(found.order.size(), graph.ops.size());
}

TEST(EarlyUpdates, AreLegalAndTakeAsLong) {
  int64_t moved = 0;
  for (uint64_t seed = 0; seed < testing::property_graphs(500); ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    // The last third is the update.
    for (size_t i = graph.ops.size() * 2 / 3; i < graph.ops.size(); ++i) graph.ops[i].phase = Phase::optimizer;
    const std::vector<OpId> from = testing::random_order(generator, graph, 30);
    const auto order = with_early_updates(graph, from);
    if (!order) continue;
    ++moved;
    ASSERT_TRUE(std::ranges::is_permutation(*order, from));
    const Schedule schedule = rewrite(graph, *order);
    const auto violation = verify(graph, schedule, kNoBudget);
    ASSERT_FALSE(violation.has_value()) << "seed " << seed << ": " << violation->reason;
    ASSERT_EQ(simulate_peak(graph, schedule).time_ns, simulate_peak(graph, rewrite(graph, from)).time_ns);
  }
  EXPECT_GT(moved, static_cast<int64_t>(testing::property_graphs(500)) / 10);
}

}  // namespace early_updates_test
}  // namespace remat
