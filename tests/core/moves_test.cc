// SPDX-License-Identifier: Apache-2.0
#include "remat/core/moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/schedule.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_moves.h"

namespace remat {
namespace moves_test {

const Graph& moving_step() {
  static const Graph graph = parse_graph(testing::kMovingStepGraph);
  return graph;
}

std::optional<OpId> move_of(const Graph& graph, MoveKind kind, std::string_view storage) {
  for (size_t i = 0; i < graph.moves.size(); ++i) {
    const Move& move = graph.moves[i];
    if (move.kind == kind && graph.storage(move.value.storage).name == storage) {
      return static_cast<OpId>(graph.ops.size() + i);
    }
  }
  return std::nullopt;
}

// The storages that a kind of move exists for.
std::set<std::string> storages_with(const Graph& graph, MoveKind kind) {
  std::set<std::string> names;
  for (const Move& move : graph.moves) {
    if (move.kind == kind) names.insert(graph.storage(move.value.storage).name);
  }
  return names;
}

// A graph of one op line after another, with an external x, and a channel of a byte each nanosecond.
Graph with_channel(const std::string& ops, int latency_ns) {
  return parse_graph("remat-graph 1\nexternal x 64 input\n" + ops +
                     "channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=" +
                     std::to_string(latency_ns) + "\n");
}

using Names = std::set<std::string>;

TEST(Moves, ExistForWhatTheGraphSays) {
  const Graph& graph = moving_step();
  EXPECT_EQ(storages_with(graph, MoveKind::pack), (Names{"m", "r"}));
  EXPECT_EQ(storages_with(graph, MoveKind::unpack), (Names{"m"}));  // r has no unpack_ns
  EXPECT_EQ(storages_with(graph, MoveKind::read_packed), (Names{"r"}));
  EXPECT_EQ(storages_with(graph, MoveKind::offload), (Names{"m", "a", "r", "g5", "g3"}));
  EXPECT_EQ(storages_with(graph, MoveKind::prefetch), storages_with(graph, MoveKind::offload));
}

TEST(Moves, AreNumberedAfterTheOpsAndFormsAfterTheStorages) {
  const Graph& graph = moving_step();
  EXPECT_EQ(graph.op_count(), graph.ops.size() + graph.moves.size());
  EXPECT_EQ(graph.storage_count(), graph.storages.size() + graph.forms.size());
  const OpId pack = *move_of(graph, MoveKind::pack, "m");
  EXPECT_TRUE(graph.is_move(pack));
  EXPECT_FALSE(graph.is_move(static_cast<OpId>(graph.ops.size() - 1)));
  const StorageId form = graph.op(pack).creates[0];
  EXPECT_TRUE(graph.is_form(form));
  EXPECT_EQ(graph.storage(form).name, "m~");
  EXPECT_EQ(graph.storage(form).bytes, 2);
  EXPECT_EQ(graph.storage(form).creator, pack);
  EXPECT_FALSE(graph.storage(form).external());
  EXPECT_FALSE(graph.storage(form).output);
}

TEST(Moves, PackAndUnpackAreOpsOfTheirOwn) {
  const Graph& graph = moving_step();
  const Op& pack = graph.op(*move_of(graph, MoveKind::pack, "m"));
  EXPECT_EQ(pack.name, "m");
  EXPECT_EQ(pack.kind, "remat::pack");
  EXPECT_EQ(pack.time_ns, 3);
  const OpId unpack_id = *move_of(graph, MoveKind::unpack, "m");
  const Op& unpack = graph.op(unpack_id);
  EXPECT_EQ(unpack.time_ns, 4);
  EXPECT_EQ(unpack.reads[0].storage, pack.creates[0]);
  EXPECT_EQ(unpack.creates[0], pack.reads[0].storage);
  EXPECT_EQ(step_kind_of(graph, unpack_id), StepKind::unpack);
  EXPECT_EQ(graph.original(unpack_id), unpack_id);
}

TEST(Moves, TransfersTakeNoTimeAndTheirFormNoBytes) {
  const Graph& graph = moving_step();
  const Op& offload = graph.op(*move_of(graph, MoveKind::offload, "a"));
  EXPECT_EQ(offload.time_ns, 0);
  EXPECT_EQ(graph.storage(offload.creates[0]).name, "a^");
  EXPECT_EQ(graph.storage(offload.creates[0]).bytes, 0);
  EXPECT_EQ(graph.op(*move_of(graph, MoveKind::prefetch, "a")).reads[0].storage, offload.creates[0]);
}

// r is updated once before anybody could pack it: what comes back is version 1.
TEST(Moves, AreOfTheLastVersion) {
  const Graph& graph = moving_step();
  const OpId prefetch = *move_of(graph, MoveKind::prefetch, "r");
  EXPECT_EQ(graph.move(prefetch).value.version, 1);
  EXPECT_EQ(graph.created_version(prefetch), 1);
  EXPECT_EQ(graph.created_version(*move_of(graph, MoveKind::offload, "r")), 0);  // of the form
  EXPECT_EQ(graph.created_version(*move_of(graph, MoveKind::prefetch, "a")), 0);
  EXPECT_EQ(graph.created_version(OpId{0}), 0);
}

TEST(Moves, AReaderIsTheOpButForWhatItReads) {
  const Graph& graph = moving_step();
  const OpId id = *move_of(graph, MoveKind::read_packed, "r");
  Op reader = graph.op(id);
  const Op& op = graph.op(graph.original(id));
  EXPECT_EQ(op.name, "b5");
  EXPECT_EQ(graph.storage(reader.reads[1].storage).name, "r~");
  EXPECT_EQ(step_kind_of(graph, id), StepKind::run);
  reader.reads[1] = op.reads[1];
  EXPECT_EQ(reader, op);
}

// The result would be written over packed bytes, which are fewer and another thing.
TEST(Moves, AReaderDoesNotTakeThePlaceOfWhatIsPacked) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 64 input
op f forward kind=k time_ns=1 reads=x creates=a:64
op g forward kind=k time_ns=1 reads=x creates=b:64
op h backward kind=k time_ns=1 reads=a,b creates=c:64 reuse=c<a,c<b
output c
packed a rule=sign bytes=8 pack_ns=1 readers=h
)");
  const Op& reader = graph.op(*move_of(graph, MoveKind::read_packed, "a"));
  ASSERT_EQ(reader.reuse.size(), 1u);
  EXPECT_EQ(graph.storage(reader.reuse[0].source).name, "b");
}

TEST(Moves, WhatNobodyReadsIsNotOffloaded) {
  const Graph graph = with_channel(
      "op f forward kind=k time_ns=1 reads=x creates=unused:64\n"
      "op g forward kind=k time_ns=1 reads=x creates=used:64\n"
      "op h forward kind=k time_ns=1 reads=used creates=end:64\noutput end\n",
      1);
  EXPECT_EQ(storages_with(graph, MoveKind::offload), (Names{"used"}));
}

TEST(Moves, WhatIsUpdatedAfterItsLastReadIsNotOffloaded) {
  const Graph graph = with_channel(
      "op f forward kind=k time_ns=1 reads=x creates=a:64,b:64\n"
      "op g forward kind=k time_ns=1 reads=a,b creates=c:64\n"
      "op h forward kind=k time_ns=1 updates=a\n"
      "op i forward kind=k time_ns=1 updates=b\n"
      "op j forward kind=k time_ns=1 reads=b creates=d:64\noutput a\noutput c\noutput d\n",
      1);
  EXPECT_EQ(storages_with(graph, MoveKind::offload), (Names{"b"}));
}

// Of 64 bytes the transfer takes 64 ns beside the latency.
TEST(Moves, WhatIsTransferredInLessThanTheLatencyIsNotOffloaded) {
  const std::string ops =
      "op f forward kind=k time_ns=1 reads=x creates=a:64,b:65\n"
      "op g forward kind=k time_ns=1 reads=a,b creates=c:1\noutput c\n";
  EXPECT_EQ(storages_with(with_channel(ops, 63), MoveKind::offload), (Names{"a", "b"}));
  EXPECT_EQ(storages_with(with_channel(ops, 64), MoveKind::offload), (Names{"b"}));
  EXPECT_EQ(storages_with(with_channel(ops, 65), MoveKind::offload), (Names{}));
  EXPECT_EQ(storages_with(with_channel(ops, 0), MoveKind::offload), (Names{"a", "b"}));
}

TEST(Moves, ExternalsStayWhereTheyAre) {
  const Graph graph = with_channel("op f forward kind=k time_ns=1 reads=x creates=a:64\noutput a\n", 0);
  EXPECT_TRUE(graph.moves.empty());
  EXPECT_TRUE(graph.forms.empty());
}

// Nothing is to be gained, and a transfer of nothing takes no longer than the latency.
TEST(Moves, WhatHasNoBytesIsNotOffloaded) {
  const Graph graph = with_channel(
      "op f forward kind=k time_ns=1 reads=x creates=a:0\n"
      "op g forward kind=k time_ns=1 reads=a creates=b:1\noutput b\n",
      0);
  EXPECT_TRUE(graph.moves.empty());
}

TEST(Moves, WithFewerKinds) {
  const Graph& graph = moving_step();
  EXPECT_EQ(with_moves(graph, true, true), graph);
  const Graph packing = with_moves(graph, true, false);
  EXPECT_FALSE(packing.channel);
  EXPECT_EQ(packing.packed_forms, graph.packed_forms);
  EXPECT_TRUE(storages_with(packing, MoveKind::offload).empty());
  EXPECT_EQ(storages_with(packing, MoveKind::pack), (Names{"m", "r"}));
  const Graph offloading = with_moves(graph, false, true);
  EXPECT_EQ(offloading.channel, graph.channel);
  EXPECT_TRUE(storages_with(offloading, MoveKind::pack).empty());
  EXPECT_TRUE(storages_with(offloading, MoveKind::read_packed).empty());
  EXPECT_EQ(storages_with(offloading, MoveKind::offload), storages_with(graph, MoveKind::offload));
}

TEST(Moves, WithoutThemTheGraphIsThatOfItsOps) {
  const std::string text(testing::kMovingStepGraph);
  const Graph bare = parse_graph(text.substr(0, text.find("packed m")));
  EXPECT_EQ(without_moves(moving_step()), bare);
  EXPECT_EQ(without_moves(bare), bare);
  EXPECT_EQ(bare.op_count(), bare.ops.size());
}

TEST(Moves, EveryKindHasItsName) {
  EXPECT_EQ(name(MoveKind::pack), "pack");
  EXPECT_EQ(name(MoveKind::unpack), "unpack");
  EXPECT_EQ(name(MoveKind::offload), "offload");
  EXPECT_EQ(name(MoveKind::prefetch), "prefetch");
  EXPECT_EQ(name(MoveKind::read_packed), "read_packed");
}

// Made again they are the same, and each reads and creates what its kind says.
TEST(Moves, OfRandomGraphs) {
  const uint64_t graphs = testing::property_graphs(1'000);
  uint64_t moves = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    Graph again = graph;
    add_moves(again);
    ASSERT_EQ(again, graph) << "seed " << seed;
    for (size_t i = 0; i < graph.moves.size(); ++i) {
      const Move& move = graph.moves[i];
      const OpId id = static_cast<OpId>(graph.ops.size() + i);
      ASSERT_EQ(move.value.version, graph.last_version(move.value.storage)) << "seed " << seed;
      ASSERT_FALSE(graph.storage(move.value.storage).external()) << "seed " << seed;
      const auto form = [](const Value& value) { return value.storage; };
      const bool of_form = std::ranges::any_of(
          move.op.reads, [&](StorageId storage) { return graph.is_form(storage); }, form);
      const bool leaves = move.kind == MoveKind::pack || move.kind == MoveKind::offload;
      ASSERT_EQ(of_form, !leaves) << "seed " << seed;
      ASSERT_EQ(graph.is_form(move.op.creates.empty() ? StorageId{} : move.op.creates[0]), leaves);
      ASSERT_TRUE(graph.rerunnable(id)) << "seed " << seed;
    }
    moves += graph.moves.size();
  }
  EXPECT_GT(moves, graphs);
}

}  // namespace moves_test
}  // namespace remat
