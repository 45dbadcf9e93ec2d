// SPDX-License-Identifier: Apache-2.0
#include "remat/core/graph.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "remat/core/graph_builder.h"
#include "remat/core/graph_text.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace graph_test {

OpId op_named(const Graph& graph, std::string_view name) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].name == name) return static_cast<OpId>(i);
  }
  throw std::logic_error("no such op");
}

StorageId storage_named(const Graph& graph, std::string_view name) {
  for (size_t i = 0; i < graph.storages.size(); ++i) {
    if (graph.storages[i].name == name) return static_cast<StorageId>(i);
  }
  throw std::logic_error("no such storage");
}

// The picture in graph.h.
Graph picture() {
  GraphBuilder builder;
  builder.external("x", 4, Role::input);
  builder.op({.name = "conv", .kind = "k", .time_ns = 1, .reads = {"x"}, .creates = {{"a1", 8}}});
  builder.op({.name = "bn", .kind = "k", .time_ns = 1, .reads = {"a1"}, .creates = {{"a2", 8}}});
  builder.op({.name = "relu_", .kind = "k", .time_ns = 1, .updates = {"a2"}});
  builder.op({.name = "fc", .kind = "k", .time_ns = 1, .reads = {"a2"}, .creates = {{"y", 2}}});
  builder.op({.name = "d_fc",
              .phase = Phase::backward,
              .kind = "k",
              .time_ns = 1,
              .reads = {"y", "a2"},
              .creates = {{"g2", 8}}});
  builder.output("g2");
  return std::move(builder).build();
}

TEST(Graph, AnUpdateMakesTheNextVersionAndLaterReadsNameIt) {
  const Graph graph = picture();
  const StorageId a2 = storage_named(graph, "a2");
  EXPECT_EQ(graph.op(op_named(graph, "relu_")).updates, (std::vector<Value>{{a2, 0}}));
  EXPECT_EQ(graph.op(op_named(graph, "fc")).reads, (std::vector<Value>{{a2, 1}}));
  EXPECT_EQ(graph.last_version(a2), 1);
  EXPECT_EQ(graph.last_version(storage_named(graph, "a1")), 0);
  EXPECT_EQ(graph.storage(a2).creator, op_named(graph, "bn"));
}

TEST(Graph, AVersionEndsWithTheOpThatChangesIt) {
  const Graph graph = picture();
  const Storage& a2 = graph.storage(storage_named(graph, "a2"));
  EXPECT_EQ(a2.version_before(op_named(graph, "relu_")), 0);
  EXPECT_EQ(a2.version_before(op_named(graph, "fc")), 1);
  EXPECT_EQ(a2.version_before(op_named(graph, "d_fc")), 1);
}

TEST(Graph, TheTimeOfAllOpsIsThatOfEachOnce) {
  GraphBuilder builder;
  for (const int64_t time_ns : {1, 20, 300}) {
    builder.op({.name = "op" + std::to_string(time_ns), .kind = "k", .time_ns = time_ns});
  }
  EXPECT_EQ(std::move(builder).build().total_time_ns(), 321);
}

TEST(Graph, ExternalsComeFirstAndTheirBytesAreThereThroughout) {
  GraphBuilder builder;
  builder.external("x", 4, Role::input);
  builder.op({.name = "f", .kind = "k", .reads = {"x"}, .creates = {{"a", 100}}});
  builder.external("w", 3, Role::param);
  const Graph graph = std::move(builder).build();
  EXPECT_EQ(graph.external_count, 2u);
  EXPECT_EQ(index(storage_named(graph, "w")), 1u);
  EXPECT_EQ(index(storage_named(graph, "a")), 2u);
  EXPECT_EQ(graph.external_bytes(), 7);
  EXPECT_EQ(graph.op(op_named(graph, "f")).creates[0], storage_named(graph, "a"));
}

TEST(Graph, WhatChangesTheWorldIsNotRerunnable) {
  const Graph graph = parse_graph(testing::kSmallStepGraph);
  EXPECT_FALSE(graph.rerunnable(op_named(graph, "log")));     // once
  EXPECT_FALSE(graph.rerunnable(op_named(graph, "reduce")));  // once
  EXPECT_FALSE(graph.rerunnable(op_named(graph, "warm")));    // updates an external
  EXPECT_FALSE(graph.rerunnable(op_named(graph, "step")));    // updates an external
  EXPECT_TRUE(graph.rerunnable(op_named(graph, "relu")));     // updates an internal
  EXPECT_TRUE(graph.rerunnable(op_named(graph, "norm")));     // effects are left alone
  EXPECT_TRUE(graph.rerunnable(op_named(graph, "drop")));     // random: the state is put back
}

TEST(Graph, TheGivenOrderIsEveryOpOnce) {
  const Graph graph = picture();
  const std::vector<OpId> order = given_order(graph);
  ASSERT_EQ(order.size(), graph.ops.size());
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(index(order[i]), i);
  EXPECT_TRUE(given_order(Graph{}).empty());
}

TEST(Graph, OutputsAreValuesAtTheirLastVersion) {
  const Graph graph = parse_graph("remat-graph 1\n"
                                  "external w 4 param\n"
                                  "op f forward kind=f time_ns=1 reads=w creates=a:4\n"
                                  "op g forward kind=g time_ns=1 updates=a\n"
                                  "op s optimizer kind=s time_ns=1 reads=a updates=w\n"
                                  "output a\noutput w\n");
  const StorageId a = storage_named(graph, "a"), w = storage_named(graph, "w");
  EXPECT_EQ(output_values(graph), (std::vector<Value>{{a, 1}}));  // w is there in any case
  EXPECT_TRUE(is_output(graph, {a, 1}));
  EXPECT_FALSE(is_output(graph, {a, 0}));
  EXPECT_EQ(next_change(graph, {a, 0}), op_named(graph, "g"));
  EXPECT_EQ(next_change(graph, {a, 1}), std::nullopt);
  EXPECT_EQ(next_change(graph, {w, 0}), op_named(graph, "s"));
}

}  // namespace graph_test
}  // namespace remat
