// SPDX-License-Identifier: Apache-2.0

// The graph of the large storages: what it keeps, and that no plan of the whole graph beats it.

#include "remat/core/exact/coarse_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "remat/core/effort.h"
#include "remat/core/exact/bound.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "tests/testing/brute_force.h"
#include "tests/testing/fastest_plan.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace coarse_graph_test {

// A classifier of two layers: large activations, small logits between forward and backward.
constexpr const char* kClassifier = R"(remat-graph 1
external x 100 input
op f1 forward kind=linear time_ns=10 reads=x creates=a1:1000
op f2 forward kind=relu time_ns=1 reads=a1 creates=a2:1000 reuse=a2<a1
op head forward kind=linear time_ns=2 reads=a2 creates=logits:10
op loss forward kind=loss time_ns=1 reads=logits creates=l:4
op d_loss backward kind=loss time_ns=1 reads=l,logits creates=d_logits:10 reuse=d_logits<logits
op d_head backward kind=mm time_ns=2 reads=d_logits creates=g2:1000
op dw_head backward kind=mm time_ns=2 reads=d_logits,a2 creates=w2:20
op d_relu backward kind=relu time_ns=1 reads=g2,a2 creates=g1:1000 reuse=g1<g2,g1<a2
op dw backward kind=mm time_ns=10 reads=g1,x creates=w1:20
output w1
output w2
)";

TEST(CoarseGraph, KeepsLargeStoragesAndTheOrderBetweenThem) {
  const Graph coarse = coarse_graph(parse_graph(kClassifier), 5, 64);
  EXPECT_EQ(print_graph(coarse), R"(remat-graph 1
external externals 100 input
op f1 forward kind=linear time_ns=10 creates=s1:1000
op f2 forward kind=relu time_ns=1 reads=s1 creates=s2:1000,after1:0 reuse=s2<s1
op d_head backward kind=mm time_ns=2 reads=after1 creates=s6:1000
op d_relu backward kind=relu time_ns=1 reads=s6,s2 creates=s8:1000 reuse=s8<s6,s8<s2
)");
}

TEST(CoarseGraph, HasNoOpsWhereTheLargestAreTooMany) {
  EXPECT_TRUE(coarse_graph(parse_graph(kClassifier), 3, 64).ops.empty());
  EXPECT_TRUE(coarse_graph(parse_graph(kClassifier), 64, 3).ops.empty());
  EXPECT_TRUE(coarse_graph(Graph{}, 64, 64).ops.empty());
}

testing::RandomGraphOptions shape(std::mt19937_64& generator) {
  testing::RandomGraphOptions options;
  options.forward_ops = static_cast<int>(testing::draw(generator, 2, 6));
  options.externals = 2;
  options.optimizer_phase = testing::chance(generator, 0.3);
  if (testing::chance(generator, 0.3)) options.update_rate = 0.5;
  if (testing::chance(generator, 0.3)) options.reuse_rate = 0.9;
  return options;
}

TEST(CoarseGraph, NoPlanOfTheWholeGraphBeatsIt) {
  // Of what an independent search finds for the whole graph.
  constexpr size_t kMostReferenceStates = 8'000;
  int64_t tried = 0, recomputing = 0, tight = 0;
  const uint64_t graphs = testing::property_graphs(600);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator, shape(generator));
    const int64_t least = lower_bound_peak_bytes(graph);
    const Baseline keep_all = keep_all_baseline(graph);
    for (const int64_t share : {10, 40, 70}) {
      const int64_t budget = least + (keep_all.peak_bytes - least) * share / 100;
      const testing::FastestPlan whole =
          testing::fastest_plan(graph, budget, {.most_states = kMostReferenceStates});
      if (!whole.time_ns) continue;
      ++tried;
      recomputing += *whole.time_ns > keep_all.time_ns;
      bool says_something = false;
      for (const size_t most_ops : {4, 8, 16}) {
        const std::string where = "seed " + std::to_string(seed) + ", budget " +
                                  std::to_string(budget) + ", ops " + std::to_string(most_ops);
        const StateSearchResult coarse =
            testing::brute_force(coarse_graph(graph, most_ops, kMostStateValues), budget);
        ASSERT_TRUE(coarse.complete && coarse.feasible) << where;
        ASSERT_LE(coarse.least_extra_ns, *whole.time_ns - keep_all.time_ns) << where;
        says_something = says_something || coarse.least_extra_ns > 0;
      }
      tight += says_something;
    }
  }
  EXPECT_GT(tried, static_cast<int64_t>(graphs));
  EXPECT_GT(tight, recomputing / 10) << tight << " of " << recomputing;  // it does say something
}

}  // namespace coarse_graph_test
}  // namespace remat
