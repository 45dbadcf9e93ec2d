// SPDX-License-Identifier: Apache-2.0

// mutwo against an implementation of its own that shares no code, and on graphs that once were priced
// or planned wrongly.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/units.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/reference_mutwo.h"

namespace remat {
namespace mutwo_test {

Plan mutwo(const Graph& graph, int64_t budget) {
  Plan made = plan(graph, {.budget_bytes = budget, .strategy = "mutwo"});
  EXPECT_EQ(testing::plan_fault(graph, made, budget), "");
  return made;
}

int64_t overhead_ns(const Graph& graph, const Plan& made) {
  return made.time_ns - keep_all_baseline(graph).time_ns;
}

bool recomputes(const Graph& graph, const Plan& made, std::string_view storage) {
  return std::ranges::any_of(made.decisions, [&](const Decision& decision) {
    return decision.recomputed && graph.storage(decision.storage).name == storage;
  });
}

TEST(Mutwo, PicksTheBestRatioFirst) {
  // cheap: 100 bytes for 1 ns; dear: 100 bytes for 50 ns. Peak at the turn: x + cheap + dear + y.
  const Graph graph = parse_graph(R"(remat-graph 1
external x 10 input
op cheap forward kind=k time_ns=1 reads=x creates=cheap:100
op dear forward kind=k time_ns=50 reads=x creates=dear:100
op mix forward kind=k time_ns=1 reads=cheap,dear creates=y:10
op pad forward kind=k time_ns=1 reads=y creates=z:100
op turn backward kind=k time_ns=1 reads=z creates=g:10
op b_dear backward kind=k time_ns=1 reads=g,dear creates=h:10
op b_cheap backward kind=k time_ns=1 reads=h,cheap creates=i:10
output i
)");
  // Keeping both: 10 + 200 + 10 + 100 = 320 while pad runs. Without cheap: 220.
  const Plan made = mutwo(graph, 300);
  EXPECT_TRUE(made.feasible);
  ASSERT_EQ(made.decisions.size(), 2u);
  EXPECT_TRUE(made.decisions[0].recomputed);   // cheap
  EXPECT_FALSE(made.decisions[1].recomputed);  // dear
  EXPECT_NE(made.decisions[0].reason.find("pick 1 of 1"), std::string::npos);
  EXPECT_EQ(overhead_ns(graph, made), 1);
}

// b is made from a, whose own last use comes before b's. It was priced at 1 ns, from a; then a, gone by
// then, was made again too, for 100 ns more.
TEST(Mutwo, KeptSourcesStayForTheRecomputationsThatReadThem) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 10 input
op fa forward kind=k time_ns=100 reads=x creates=a:10
op fb forward kind=k time_ns=1 reads=a creates=b:100
op fc forward kind=k time_ns=1 reads=b creates=c:100
op fd forward kind=k time_ns=1 reads=c creates=d:100
op turn backward kind=k time_ns=1 reads=d creates=g:1
op ba backward kind=k time_ns=1 reads=g,a creates=h:1
op bb backward kind=k time_ns=1 reads=h,b creates=i:1
output i
)");
  // x + a + b + c + d = 320 while fd runs; without b 220.
  const Plan made = mutwo(graph, 220);
  EXPECT_TRUE(made.feasible);
  EXPECT_TRUE(recomputes(graph, made, "b"));
  EXPECT_FALSE(recomputes(graph, made, "a"));
  EXPECT_EQ(overhead_ns(graph, made), 1);
}

// b is made in 1 ns from a, which is kept whatever is picked: as an output, or since there is nothing
// between its last use in forward and its first in backward. Walking on to x made b look dearer (101 ns)
// than d (50 ns), so that d was recomputed.
void expect_b_is_cheap(const std::string& reads_a, const std::string& outputs) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 10 input
op fa forward kind=k time_ns=100 reads=x creates=a:10
op fb forward kind=k time_ns=1 reads=a creates=b:100
op fd forward kind=k time_ns=50 reads=x creates=d:100
op fp forward kind=k time_ns=1 reads=b,d creates=p:100
op fq forward kind=k time_ns=1 reads=p)" +
                                  reads_a + R"( creates=q:100
op turn backward kind=k time_ns=1 reads=q)" +
                                  reads_a + R"( creates=g:1
op bd backward kind=k time_ns=1 reads=g,d creates=h:1
op bb backward kind=k time_ns=1 reads=h,b creates=i:1
output i
)" + outputs);
  // x + a + b + d + p + q = 420 while fq runs.
  const Plan made = mutwo(graph, 320);
  EXPECT_TRUE(made.feasible);
  EXPECT_TRUE(recomputes(graph, made, "b"));
  EXPECT_FALSE(recomputes(graph, made, "d"));
  EXPECT_EQ(overhead_ns(graph, made), 1);
}

TEST(Mutwo, OutputsAreSources) { expect_b_is_cheap("", "output a\n"); }

TEST(Mutwo, WhatHasNoIdleWindowIsASource) { expect_b_is_cheap(",a", ""); }

// The reference takes what an op that must not be re-run has made as it is; a later change in place would
// take it away.
bool reference_applies(const Graph& graph) {
  for (const Storage& storage : graph.storages) {
    if (storage.external() || storage.changers.empty()) continue;
    if (!graph.rerunnable(*storage.creator)) return false;
    for (const OpId changer : storage.changers) {
      if (!graph.rerunnable(changer)) return false;
    }
  }
  return graph.ops.back().phase != Phase::forward;
}

TEST(Mutwo, EqualsAnImplementationOfItsOwn) {
  int64_t cases = 0, with_several_picks = 0, infeasible = 0;
  const uint64_t graphs = testing::property_graphs(400);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    testing::RandomGraphOptions shape;
    shape.forward_ops = static_cast<int>(testing::draw(generator, 2, 20));
    shape.once_rate = 0.02;
    const Graph graph = testing::random_graph(generator, shape);
    if (!reference_applies(graph)) continue;
    const int64_t least = floor(graph).bytes;
    const int64_t most = keep_all_baseline(graph).peak_bytes;
    for (const int64_t budget : {least, (least + most) / 2}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budget));
      const testing::ReferenceMutwo expected = testing::reference_mutwo(graph, budget);
      const Plan made = mutwo(graph, budget);
      ASSERT_EQ(made.order, expected.order);
      ASSERT_EQ(made.feasible, expected.peak_bytes <= budget);
      ASSERT_LE(overhead_ns(graph, made), expected.priced_ns);
      for (size_t p = 0; p < expected.picks.size(); ++p) {
        const auto decision =
            std::ranges::find(made.decisions, expected.picks[p].storage, &Decision::storage);
        ASSERT_NE(decision, made.decisions.end());
        ASSERT_NE(decision->reason.find("pick " + std::to_string(p + 1) + " of "),
                  std::string::npos);
        ASSERT_NE(decision->reason.find("for " + format_ns(expected.picks[p].total_recomp_time_ns)),
                  std::string::npos)
            << decision->reason;
      }
      ++cases;
      with_several_picks += expected.picks.size() > 2 ? 1 : 0;
      infeasible += made.feasible ? 0 : 1;
    }
  }
  EXPECT_GE(cases, static_cast<int64_t>(graphs) / 2);
  EXPECT_GT(with_several_picks, cases / 4);
  EXPECT_GT(infeasible, cases / 20);
}

}  // namespace mutwo_test
}  // namespace remat
