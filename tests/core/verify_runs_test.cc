// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify_runs.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "remat/core/graph_text.h"

namespace remat::detail {
namespace verify_runs_test {

using Kind = ViolationKind;

// Two ops of each class, one of which belongs to two, an op of none, and one that changes the world.
const Graph& graph() {
  static const Graph made = parse_graph(R"(remat-graph 1
external x 4 input
external w 4 param
external s 4 buffer
op plain forward kind=k time_ns=1 reads=x creates=a:4
op draw1 forward kind=k time_ns=1 reads=a creates=b:4 random
op draw2 forward kind=k time_ns=1 reads=a creates=c:4 effects=s random
op norm forward kind=k time_ns=1 reads=a creates=d:4 effects=s
op log1 forward kind=k time_ns=1 reads=a once
op log2 forward kind=k time_ns=1 reads=b once
op step optimizer kind=k time_ns=1 reads=d updates=w
)");
  return made;
}

OpId op(std::string_view name) {
  for (size_t i = 0; i < graph().ops.size(); ++i) {
    if (graph().ops[i].name == name) return static_cast<OpId>(i);
  }
  throw std::logic_error("no op " + std::string(name));
}

TEST(RunRules, TheGivenOrderIsRight) {
  RunRules rules(graph());
  for (size_t i = 0; i < graph().ops.size(); ++i) {
    EXPECT_EQ(rules.missing(), static_cast<OpId>(i));
    EXPECT_FALSE(rules.run(static_cast<OpId>(i)));
  }
  EXPECT_FALSE(rules.missing());
}

TEST(RunRules, EachClassKeepsItsOwnOrderOnly) {
  RunRules rules(graph());
  EXPECT_FALSE(rules.run(op("log1")));
  EXPECT_FALSE(rules.run(op("draw1")));
  EXPECT_FALSE(rules.run(op("plain")));
  EXPECT_FALSE(rules.run(op("draw2")));
  EXPECT_FALSE(rules.run(op("norm")));

  RunRules random(graph());
  const auto early = random.run(op("draw2"));
  ASSERT_TRUE(early);
  EXPECT_EQ(early->kind, Kind::order_changed);
  EXPECT_EQ(early->reason, "it runs as random op number 1; expected draw1 there, as in the graph");
  RunRules once(graph());
  EXPECT_EQ(once.run(op("log2")).value().kind, Kind::order_changed);
  RunRules effects(graph());
  EXPECT_EQ(effects.run(op("norm")).value().kind, Kind::order_changed);
}

TEST(RunRules, ASecondTimeIsARecompute) {
  RunRules rules(graph());
  EXPECT_EQ(rules.recompute(op("plain")).value().kind, Kind::recompute_first);
  EXPECT_FALSE(rules.run(op("plain")));
  EXPECT_FALSE(rules.recompute(op("plain")));
  EXPECT_EQ(rules.run(op("plain")).value().kind, Kind::run_twice);
}

TEST(RunRules, WhatChangesTheWorldRunsOnce) {
  RunRules rules(graph());
  for (size_t i = 0; i < graph().ops.size(); ++i) rules.run(static_cast<OpId>(i));
  EXPECT_EQ(rules.recompute(op("log1")).value().kind, Kind::once_recomputed);
  EXPECT_EQ(rules.recompute(op("step")).value().kind, Kind::once_recomputed);
  EXPECT_FALSE(rules.recompute(op("norm")));
  EXPECT_FALSE(rules.recompute(op("draw1")));
}

}  // namespace verify_runs_test
}  // namespace remat::detail
