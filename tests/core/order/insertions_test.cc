// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/insertions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/graph_text.h"

namespace remat {
namespace insertions_test {

// a (8 bytes, 3 ns) and b (8 bytes, 50 ns) are idle while f3 runs: 4 + 8 + 8 + 8.
constexpr const char* kGraph = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=3 reads=x creates=a:8
op f2 forward kind=k time_ns=50 reads=a creates=b:8
op f3 forward kind=k time_ns=5 reads=x creates=c:8
op b3 backward kind=k time_ns=5 reads=c,b creates=g:0
op b1 backward kind=k time_ns=5 reads=g,a creates=h:0
output h
)";

class Insertions : public ::testing::Test {
 protected:
  Insertions() : graph(parse_graph(kGraph)), context(graph, {.budget_bytes = 20}), finder(context) {
    for (size_t i = 0; i < graph.ops.size(); ++i) order.push_back(static_cast<OpId>(i));
    context.start(order, effort);
    finder.look_at(order, effort);
  }

  std::string name(const Insertion& insertion) const {
    return graph.storage(context.cost.storage(insertion.target)).name;
  }

  const Graph graph;
  SearchContext context;
  InsertionFinder finder;
  std::vector<OpId> order;
  Effort effort;
};

TEST_F(Insertions, ComeByTheBestRatio) {
  const std::vector<Insertion> found = finder.at(2, 10, {}, effort);
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(name(found.front()), "a");
  EXPECT_EQ(found.front().block, (std::vector<OpId>{OpId{0}}));
  EXPECT_EQ(found.front().time_ns, 3);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_GE(ratio(found[i - 1].gain, found[i - 1].time_ns),
              ratio(found[i].gain, found[i].time_ns));
  }
  EXPECT_EQ(finder.at(2, 1, {}, effort).size(), 1u);
}

// To forget b, f2 must run again; where a is to be made anew as well, f1 too.
TEST_F(Insertions, BringWhatTheyAreMadeFrom) {
  const std::vector<Insertion> found = finder.at(2, 10, {}, effort);
  EXPECT_TRUE(std::ranges::any_of(found, [&](const Insertion& insertion) {
    return name(insertion) == "b" && insertion.block.back() == OpId{1};
  }));
}

TEST_F(Insertions, LeaveOutWhatIsTabu) {
  for (const Insertion& insertion : finder.at(2, 10, OpId{0}, effort)) {
    EXPECT_EQ(std::ranges::count(insertion.block, OpId{0}), 0);
  }
  EXPECT_FALSE(finder.at(2, 10, OpId{0}, effort).empty());
}

TEST_F(Insertions, RemoveTheOverflowThatTheyPromise) {
  const std::vector<Insertion> found = finder.at(2, 1, {}, effort);
  const double before = context.evaluate(order, effort).overflow;
  const auto after = context.evaluate(with_insertions(order, found), effort);
  EXPECT_TRUE(after.legal);
  EXPECT_DOUBLE_EQ(before - after.overflow, found.front().gain);
}

TEST_F(Insertions, ArePutInAtTheirPlaces) {
  std::vector<Insertion> two(2);
  two[0].before = 1;
  two[0].block = {OpId{7}};
  two[1].before = 4;
  two[1].block = {OpId{8}, OpId{9}};
  EXPECT_EQ(with_insertions(order, two), (std::vector<OpId>{OpId{0}, OpId{7}, OpId{1}, OpId{2},
                                                            OpId{3}, OpId{8}, OpId{9}, OpId{4}}));
}

// m is idle at `big` (position 3), where 4 + 20 + 1 + 30 are resident in the given order.
constexpr const char* kMoves = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=30 reads=x creates=m:20
op f2 forward kind=k time_ns=5 reads=m creates=r:1
op wait forward kind=k time_ns=100 reads=r creates=s:1
op big forward kind=k time_ns=5 reads=s creates=t:30
op rest backward kind=k time_ns=100 reads=t creates=u:1
op b1 backward kind=k time_ns=5 reads=u,m creates=v:1
output v
packed m rule=r bytes=2 pack_ns=2 unpack_ns=3 readers=b1
channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0
)";

class InsertedMoves : public ::testing::Test {
 protected:
  InsertedMoves() : graph(parse_graph(kMoves)) {
    for (size_t i = 0; i < graph.ops.size(); ++i) order.push_back(static_cast<OpId>(i));
    const OrderCost cost(graph);
    for (size_t i = 0; i < graph.moves.size(); ++i) {
      const Move& move = graph.moves[i];
      if (graph.storage(move.value.storage).name == "m") moves[move.kind] = static_cast<OpId>(graph.ops.size() + i);
    }
  }

  // Those of m at `big`.
  std::vector<Insertion> found(const SearchSettings& settings) {
    context.emplace(graph, settings);
    InsertionFinder finder(*context);
    context->start(order, effort);
    finder.look_at(order, effort);
    std::vector<Insertion> all = finder.at(3, 20, {}, effort);
    std::erase_if(all, [&](const Insertion& insertion) {
      return graph.storage(context->cost.storage(insertion.target)).name != "m";
    });
    return all;
  }

  const Graph graph;
  std::vector<OpId> order;
  std::map<MoveKind, OpId> moves;
  std::optional<SearchContext> context;
  Effort effort;
};

using Ops = std::vector<OpId>;

TEST_F(InsertedMoves, PackAfterTheLastUseAndUnpackBeforeTheNext) {
  const std::vector<Insertion> all = found({.budget_bytes = 50, .rerun = false, .offload = false});
  ASSERT_EQ(all.size(), 2u);
  // b1 reads packed bytes: 2 ns. The other way takes 2 + 3.
  EXPECT_EQ(all[0].time_ns, 2);
  EXPECT_EQ(with_insertions(order, {&all[0], 1}),
            (Ops{OpId{0}, OpId{1}, moves[MoveKind::pack], OpId{2}, OpId{3}, OpId{4},
                 moves[MoveKind::read_packed]}));
  EXPECT_EQ(all[1].time_ns, 5);
  EXPECT_EQ(with_insertions(order, {&all[1], 1}),
            (Ops{OpId{0}, OpId{1}, moves[MoveKind::pack], OpId{2}, OpId{3}, OpId{4},
                 moves[MoveKind::unpack], OpId{5}}));
}

// Written from 35 to 55, beside `wait`; b1 begins at 240, the read beside `rest`.
TEST_F(InsertedMoves, TransferBesideTheOpsOrAtOnce) {
  const std::vector<Insertion> all = found({.budget_bytes = 50, .rerun = false, .pack = false});
  ASSERT_EQ(all.size(), 4u);
  std::map<int64_t, int> by_time;
  for (const Insertion& insertion : all) {
    ++by_time[insertion.time_ns];
    EXPECT_EQ(insertion.leaving, moves[MoveKind::offload]);
    EXPECT_EQ(insertion.block, (Ops{moves[MoveKind::prefetch]}));
    EXPECT_EQ(insertion.in_time, insertion.time_ns == 0);
    EXPECT_LE(insertion.leaving_before, insertion.before);
    // As many nanoseconds as they are said to take.
    const auto cost = context->evaluate(with_insertions(order, {&insertion, 1}), effort);
    EXPECT_TRUE(cost.legal);
    EXPECT_EQ(cost.time_ns - context->once_ns, insertion.time_ns);
  }
  EXPECT_EQ(by_time, (std::map<int64_t, int>{{0, 1}, {20, 2}, {40, 1}}));
  EXPECT_TRUE(all[0].in_time);
  EXPECT_EQ(all[0].leaving_before, 3u);  // before `big`
  EXPECT_EQ(all[0].before, 4u);          // before `rest`
}

TEST_F(InsertedMoves, ThePriceOfTheChannelIsOfWhatGoesOnBesideTheOps) {
  for (const Insertion& insertion :
       found({.budget_bytes = 50, .rerun = false, .pack = false, .channel_price = 0.5})) {
    EXPECT_EQ(insertion.price_ns, (40 - insertion.time_ns) / 2);
  }
}

TEST_F(InsertedMoves, AreThoseThatAreAskedFor) {
  EXPECT_TRUE(found({.budget_bytes = 50, .rerun = false, .pack = false, .offload = false}).empty());
  for (const Insertion& insertion : found({.budget_bytes = 50, .pack = false, .offload = false})) {
    EXPECT_FALSE(insertion.leaving);
    EXPECT_FALSE(insertion.reader);
    EXPECT_EQ(insertion.block, (Ops{OpId{0}}));
  }
  EXPECT_TRUE(found({.budget_bytes = 60}).empty());  // everything fits
}

// What is packed or away already need not leave again.
TEST_F(InsertedMoves, WhatHasLeftIsOnlyBroughtBack) {
  const OpId pack = moves[MoveKind::pack], unpack = moves[MoveKind::unpack];
  context.emplace(graph, SearchSettings{.budget_bytes = 30, .rerun = false, .offload = false});
  // Packed throughout; unpacked for `wait`'s sake, by mistake, long before b1 needs it.
  const Ops early = {OpId{0}, OpId{1}, pack, unpack, OpId{2}, OpId{3}, OpId{4}, OpId{5}};
  ASSERT_TRUE(context->start(early, effort).cost.legal);
  InsertionFinder finder(*context);
  finder.look_at(early, effort);
  for (const Insertion& insertion : finder.at(5, 20, {}, effort)) EXPECT_TRUE(insertion.leaving);
  // With the packed bytes still in use at b1's end, they are there.
  const Ops late = {OpId{0}, OpId{1}, pack, unpack, OpId{2}, OpId{3}, OpId{4}, OpId{5}, unpack};
  ASSERT_TRUE(context->start(late, effort).cost.legal);
  InsertionFinder again(*context);
  again.look_at(late, effort);
  const std::vector<Insertion> all = again.at(5, 20, {}, effort);
  ASSERT_FALSE(all.empty());
  for (const Insertion& insertion : all) EXPECT_FALSE(insertion.leaving);
}

}  // namespace insertions_test
}  // namespace remat
