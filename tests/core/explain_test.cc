// SPDX-License-Identifier: Apache-2.0
#include "remat/core/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/units.h"
#include "remat/core/verify.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"

namespace remat {
namespace explain_test {

// a lies idle from f2 to d2, b from f3 to d3; c is needed again at once, by the loss.
constexpr std::string_view kThreeLayers = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=10 reads=x creates=a:1024
op f2 forward kind=k time_ns=20 reads=a creates=b:2048
op f3 forward kind=k time_ns=5 reads=b creates=c:512
op loss backward kind=k time_ns=1 reads=c creates=gc:512
op d3 backward kind=k time_ns=7 reads=gc,b creates=gb:2048
op d2 backward kind=k time_ns=3 reads=gb,a creates=ga:1024
output ga
)";

Plan verified(const Graph& graph, const PlanOptions& options) {
  Plan made = plan(graph, options);
  const auto violation = verify(graph, rewrite(graph, made.order), made.peak_bytes);
  EXPECT_FALSE(violation) << violation->reason;
  return made;
}

std::map<std::string, Explanation> explained(std::string_view text, const PlanOptions& options) {
  const Graph graph = parse_graph(text);
  std::map<std::string, Explanation> by_name;
  for (Explanation& explanation : explain(graph, verified(graph, options))) {
    const std::string& storage = graph.storage(explanation.storage).name;
    by_name.emplace(storage, std::move(explanation));
  }
  return by_name;
}

TEST(Explain, KeepAllKeepsWhatIsIdle) {
  const auto by_name = explained(kThreeLayers, {.strategy = "keep_all"});
  ASSERT_EQ(by_name.size(), 6u);
  for (const std::string storage : {"a", "b"}) {
    EXPECT_EQ(by_name.at(storage).action, Action::keep) << storage;
  }
  for (const std::string storage : {"c", "gc", "gb", "ga"}) {
    EXPECT_EQ(by_name.at(storage).action, Action::none) << storage;
  }
  // Idle while f3, loss and d3 run: 5 + 1 + 7.
  EXPECT_EQ(by_name.at("a").sentence,
            "a (1 KiB, made by f1, last used by d2), idle for 13 ns between f2 and d2, is kept: "
            "this strategy keeps everything");
  EXPECT_EQ(by_name.at("ga").sentence,
            "ga (1 KiB, made by d2, an output of the step): it must survive the step");
}

// d3 needs b, made again from x by f1 and f2; then d2 needs a, forgotten again by then: f1 runs
// twice more, f2 once.
TEST(Explain, RecomputeAllCountsTheRuns) {
  const auto by_name = explained(kThreeLayers, {.strategy = "recompute_all"});
  EXPECT_EQ(by_name.at("a").action, Action::recompute);
  EXPECT_EQ(by_name.at("a").recomputes, 2);
  EXPECT_EQ(by_name.at("b").action, Action::recompute);
  EXPECT_EQ(by_name.at("b").recomputes, 1);
  EXPECT_EQ(by_name.at("c").action, Action::none);
  EXPECT_EQ(
      by_name.at("a").sentence,
      "a (1 KiB, made by f1, last used by d2), idle for 13 ns between f2 and d2, is recomputed "
      "2 times at 10 ns each: this strategy keeps no activation");
}

// The search decides about orders and records no reason for a value; explain said that "something
// else" passed through each value it recomputed.
TEST(Explain, WithoutARecordedReasonThePlanItselfSaysWhatWouldHappenOtherwise) {
  const Graph graph = parse_graph(kThreeLayers);
  Plan made = verified(graph, {.strategy = "recompute_all"});
  made.decisions.clear();
  const std::vector<Explanation> recomputed = explain(graph, made);
  EXPECT_NE(recomputed[1].sentence.find("kept instead, it would put the peak at 4.5 KiB"),
            std::string::npos)
      << recomputed[1].sentence;
  made = verified(graph, {.strategy = "keep_all"});
  made.strategy = "search";
  made.decisions.clear();
  const std::vector<Explanation> kept = explain(graph, made);
  EXPECT_NE(kept[1].sentence.find("is kept: the plan fits with it, and making it again takes 20 ns"),
            std::string::npos)
      << kept[1].sentence;
}

TEST(Explain, WhatCannotBeDecidedSaysWhy) {
  const auto by_name = explained(R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=10 reads=x creates=a:8 once
op f2 forward kind=k time_ns=10 reads=x creates=nothing:0,unused:4
op f3 forward kind=k time_ns=10 reads=x creates=l:1
op d1 backward kind=k time_ns=10 reads=l,a,nothing creates=g:1
output g
)",
                                 {.strategy = "keep_all"});
  const auto says = [&](const std::string& storage, std::string_view words) {
    const Explanation& explanation = by_name.at(storage);
    EXPECT_EQ(explanation.action, Action::none);
    EXPECT_NE(explanation.sentence.find(words), std::string::npos) << explanation.sentence;
  };
  says("a", "its creator must not be re-run");
  says("nothing", "it has no bytes");
  says("unused", "never used");
  says("g", "it must survive the step");
}

std::map<std::string, Explanation> by_name(const Graph& graph, const Plan& made) {
  std::map<std::string, Explanation> named;
  for (Explanation& explanation : explain(graph, made)) {
    const std::string& storage = graph.storage(explanation.storage).name;
    named.emplace(storage, std::move(explanation));
  }
  return named;
}

Plan moving_plan(const Graph& graph, std::string_view schedule) {
  Plan made;
  made.order = order_of(graph, parse_schedule(schedule, graph));
  made.strategy = "search";
  made.feasible = true;
  made.peak_bytes = testing::kMovingStepPeakBytes;
  return made;
}

// What becomes of a value, and what each of the other ways would cost.
TEST(Explain, MovesComeWithThreePrices) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const auto explained = by_name(graph, moving_plan(graph, testing::kMovingStepSchedule));
  const Explanation& m = explained.at("m");
  EXPECT_EQ(m.action, Action::pack);
  EXPECT_EQ(m.packs, 1);
  EXPECT_EQ(m.offloads, 0);
  EXPECT_EQ(m.recomputes, 0);
  // Idle from f2 to b2: 30 + 5 + 5 + 40 + 40 + 30. Written in 5 + 32, read in 5 + 16.
  EXPECT_EQ(m.sentence,
            "m (64 B, made by f1, last used by b2), idle for 150 ns between f2 and b2, is packed 1 time; "
            "making it again takes 10 ns or more, packing (two_values) 7 ns and 2 B, offloading 37 ns and "
            "21 ns of the channel");
  const Explanation& a = explained.at("a");
  EXPECT_EQ(a.action, Action::offload);
  EXPECT_EQ(a.offloads, 1);
  EXPECT_EQ(a.sentence,
            "a (100 B, made by f2, last used by b3), idle for 90 ns between f3 and b3, is offloaded 1 time; "
            "making it again takes 20 ns or more, offloading 55 ns and 30 ns of the channel");
  const Explanation& r = explained.at("r");
  EXPECT_EQ(r.action, Action::pack);
  EXPECT_NE(r.sentence.find("packing (sign) 2 ns and 5 B, offloading 25 ns and 15 ns of the channel"),
            std::string::npos)
      << r.sentence;
  EXPECT_EQ(explained.at("g2").action, Action::none);
  EXPECT_EQ(explained.at("g2").sentence.find("channel"), std::string::npos);
}

TEST(Explain, WhatIsKeptSaysWhatTheOtherWaysCost) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const auto explained = by_name(graph, verified(graph, {.strategy = "keep_all"}));
  EXPECT_EQ(explained.at("a").action, Action::keep);
  EXPECT_EQ(explained.at("a").sentence,
            "a (100 B, made by f2, last used by b3), idle for 90 ns between f3 and b3, is kept: this strategy "
            "keeps everything; making it again takes 20 ns or more, offloading 55 ns and 30 ns of the channel");
}

TEST(Explain, MovesAreCounted) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const std::string text(testing::kMovingStepSchedule);
  // m is packed twice and made again once; a is offloaded twice.
  const std::string more = R"(remat-schedule 1
run f1 reads=x creates=m
pack m reads=m creates=m~
free m
unpack m reads=m~ creates=m#1
free m~
run f2 reads=m#1 creates=a
free m#1
run f3 reads=a creates=r
offload a reads=a creates=a^
run f4 reads=r creates=s
free a
prefetch a reads=a^ creates=a#1
offload a reads=a#1 creates=a^#1
free a^
run relu updates=r
free a#1
run f5 reads=r,s creates=l
free s
run b5 reads=l,r creates=g5
free r
prefetch a reads=a^#1 creates=a#2
free a^#1
run b3 reads=g5,a#2 creates=g3 reuse=g3<g5
free a#2
recompute f1 reads=x creates=m#2
run b2 reads=g3,m#2 creates=g2
free g3
free m#2
)";
  const Schedule schedule = parse_schedule(more, graph);
  ASSERT_FALSE(verify(graph, schedule, kNoBudget));
  const auto explained = by_name(graph, moving_plan(graph, more));
  EXPECT_EQ(explained.at("a").offloads, 2);
  EXPECT_NE(explained.at("a").sentence.find("is offloaded 2 times;"), std::string::npos);
  const Explanation& m = explained.at("m");
  EXPECT_EQ(m.action, Action::pack);
  EXPECT_EQ(m.recomputes, 1);
  EXPECT_NE(m.sentence.find("is packed 1 time, and made again 1 time;"), std::string::npos) << m.sentence;
}

TEST(Explain, WhatCannotBeMadeAgainSaysSo) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=10 reads=x creates=a:64 once
op f2 forward kind=k time_ns=10 reads=a creates=b:1
op b1 backward kind=k time_ns=10 reads=b,a creates=c:1
output c
packed a rule=bits bytes=8 pack_ns=2 unpack_ns=3
)");
  Plan made;
  const size_t pack = graph.ops.size();
  for (const size_t id : {size_t{0}, size_t{1}, pack, pack + 1, size_t{2}}) made.order.push_back(static_cast<OpId>(id));
  const auto explained = by_name(graph, made);
  EXPECT_EQ(explained.at("a").action, Action::pack);
  EXPECT_NE(explained.at("a").sentence.find("; it cannot be made again, packing (bits) 5 ns and 8 B"),
            std::string::npos)
      << explained.at("a").sentence;
}

TEST(Explain, EveryActionHasItsName) {
  EXPECT_EQ(name(Action::keep), "keep");
  EXPECT_EQ(name(Action::recompute), "recompute");
  EXPECT_EQ(name(Action::none), "none");
  EXPECT_EQ(name(Action::pack), "pack");
  EXPECT_EQ(name(Action::offload), "offload");
}

TEST(Explain, EveryStorageOfRandomGraphsWithMoves) {
  std::map<Action, int64_t> actions;
  for (uint64_t seed = 0; seed < testing::property_graphs(60); ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    const Plan made = verified(graph, {.budget_bytes = keep_all_baseline(graph).peak_bytes * 6 / 10,
                                       .strategy = "search",
                                       .max_orders = 100});
    for (const Explanation& explanation : explain(graph, made)) {
      const auto count = [&](auto wanted) { return std::ranges::count_if(made.order, wanted); };
      const auto moved = [&](MoveKind kind) {
        return count([&](OpId id) {
          return graph.is_move(id) && graph.move(id).kind == kind &&
                 graph.move(id).value.storage == explanation.storage;
        });
      };
      const OpId creator = *graph.storage(explanation.storage).creator;
      ASSERT_EQ(explanation.packs, moved(MoveKind::pack)) << seed;
      ASSERT_EQ(explanation.offloads, moved(MoveKind::offload)) << seed;
      ASSERT_EQ(explanation.recomputes, count([&](OpId id) { return graph.original(id) == creator; }) - 1) << seed;
      ++actions[explanation.action];
    }
  }
  EXPECT_GT(actions[Action::pack], 0);
  EXPECT_GT(actions[Action::offload], 0);
  EXPECT_GT(actions[Action::recompute], 0);
}

TEST(Explain, EmptyGraph) {
  const Graph graph = parse_graph("remat-graph 1\nexternal x 4 input\n");
  EXPECT_TRUE(explain(graph, plan(graph, {.strategy = "keep_all"})).empty());
}

TEST(Explain, EveryStorageOfRandomGraphs) {
  for (uint64_t seed = 0; seed < testing::property_graphs(100); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    const int64_t most = keep_all_baseline(graph).peak_bytes;
    for (const Strategy& strategy : strategies()) {
      const Plan made = verified(graph, {.budget_bytes = most * 3 / 4,
                                         .strategy = std::string(strategy.name),
                                         .time_limit_seconds = 0.005});
      const std::vector<Explanation> explanations = explain(graph, made);
      ASSERT_EQ(explanations.size(), graph.storages.size() - graph.external_count);
      for (size_t i = 0; i < explanations.size(); ++i) {
        const Explanation& explanation = explanations[i];
        const std::string where = std::string(strategy.name) + ", seed " + std::to_string(seed) +
                                  ": " + explanation.sentence;
        ASSERT_EQ(index(explanation.storage), graph.external_count + i) << where;
        const Storage& storage = graph.storage(explanation.storage);
        const int64_t runs = std::count(made.order.begin(), made.order.end(), *storage.creator);
        ASSERT_EQ(explanation.recomputes, runs - 1) << where;
        ASSERT_EQ(explanation.action == Action::recompute, runs > 1) << where;
        const std::string start = storage.name + " (" + format_bytes(storage.bytes) + ", made by ";
        ASSERT_TRUE(explanation.sentence.starts_with(start)) << where;
        const size_t colon = explanation.sentence.rfind(": ");
        ASSERT_NE(colon, std::string::npos) << where;
        ASSERT_GT(explanation.sentence.size(), colon + 2) << where;
      }
    }
  }
}

}  // namespace explain_test
}  // namespace remat
