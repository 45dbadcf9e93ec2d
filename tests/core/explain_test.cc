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
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace {

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

}  // namespace
}  // namespace remat
