// SPDX-License-Identifier: Apache-2.0
// What a text can be wrong in is tested with graph_text; here is what only a caller in C++ can do.
#include "remat/core/graph_builder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "remat/core/error.h"

namespace remat {
namespace graph_builder_test {

TEST(GraphBuilder, RefusesNegativeSizesAndTimes) {
  GraphBuilder builder;
  EXPECT_THROW(builder.external("x", -1, Role::input), Error);
  EXPECT_THROW(builder.op({.name = "f", .kind = "k", .time_ns = -1}), Error);
  EXPECT_THROW(builder.op({.name = "f", .kind = "k", .workspace_bytes = -1}), Error);
  EXPECT_THROW(builder.op({.name = "f", .kind = "k", .creates = {{"a", -1}}}), Error);
  EXPECT_EQ(std::move(builder).build(), Graph{});
}

// Every call that is refused, between two that are not: the graph is as if it had not been made.
TEST(GraphBuilder, IsAsBeforeACallThatItRefuses) {
  const auto build = [](bool with_faults) {
    GraphBuilder builder;
    const auto refused = [&](auto call) {
      if (with_faults) {
        EXPECT_THROW(call(), Error);
      }
    };
    builder.external("x", 4, Role::input);
    refused([&] { builder.external("x", 8, Role::input); });
    refused([&] { builder.external("a b", 8, Role::input); });
    builder.op({.name = "f", .kind = "k", .time_ns = 1, .reads = {"x"}, .creates = {{"a", 8}}});
    refused([&] { builder.op({.name = "f", .kind = "k", .reads = {"x"}, .creates = {{"b", 8}}}); });
    refused([&] { builder.op({.name = "g", .kind = "k", .reads = {"b"}, .creates = {{"b", 8}}}); });
    refused([&] { builder.op({.name = "g", .kind = "k", .creates = {{"b", 8}, {"b", 8}}}); });
    refused([&] { builder.op({.name = "g", .kind = "k", .creates = {{"b", INT64_MAX}}}); });
    refused([&] { builder.output("b"); });
    refused([&] { builder.packed({.storage = "b", .rule = "bits", .bytes = 1}); });
    builder.op({.name = "g", .kind = "k", .time_ns = 1, .reads = {"a"}, .creates = {{"b", 8}}});
    builder.output("b");
    refused([&] { builder.output("b"); });
    return std::move(builder).build();
  };
  EXPECT_EQ(build(true), build(false));
}

TEST(GraphBuilder, NumbersExternalsFirstWhereverTheyAreDeclared) {
  GraphBuilder builder;
  builder.external("x", 4, Role::input);
  builder.op({.name = "f", .kind = "k", .reads = {"x"}, .creates = {{"a", 8}}});
  builder.external("w", 2, Role::param);
  builder.op({.name = "g", .kind = "k", .reads = {"a", "w"}, .creates = {{"b", 8}}});
  builder.output("b");
  const Graph graph = std::move(builder).build();
  ASSERT_EQ(graph.external_count, 2u);
  EXPECT_EQ(graph.storages[1].name, "w");
  EXPECT_EQ(graph.storages[2].name, "a");
  EXPECT_EQ(graph.ops[1].reads, (std::vector<Value>{{StorageId{2}, 0}, {StorageId{1}, 0}}));
}

TEST(OpSpec, LikeAnOpIsEverythingButItsStorages) {
  Op op;
  op.name = "f";
  op.phase = Phase::backward;
  op.kind = "aten::dropout";
  op.scope = "layer1";
  op.time_ns = 3;
  op.workspace_bytes = 4;
  op.random = op.once = true;
  op.reads = {{StorageId{0}, 0}};
  GraphBuilder builder;
  OpSpec spec = OpSpec::like(op);
  EXPECT_TRUE(spec.reads.empty());
  builder.op(std::move(spec));
  const Graph graph = std::move(builder).build();
  Op made = graph.op(OpId{0});
  made.reads = op.reads;
  EXPECT_EQ(made, op);
}

}  // namespace graph_builder_test
}  // namespace remat
