// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/recompute.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace recompute_test {

constexpr int64_t kAnyPeak = std::numeric_limits<int64_t>::max();

constexpr const char* kStep = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=1 reads=x creates=a:8
op f2 forward kind=k time_ns=1 reads=a creates=b:8
op f3 forward kind=k time_ns=1 updates=b
op f4 forward kind=k time_ns=1 reads=b creates=c:8
op b4 backward kind=k time_ns=1 reads=c,b creates=g:8
op b1 backward kind=k time_ns=1 reads=g,a creates=h:8
output h
)";

std::string planned(const Graph& graph, const std::vector<Drop>& drops, bool share = false) {
  std::string names;
  for (const OpId op : order_with_drops(graph, uses_of(graph), drops, {.share = share}).order) {
    names += (names.empty() ? "" : " ") + graph.op(op).name;
  }
  return names;
}

TEST(Recompute, MakesAForgottenValueRightBeforeItsUse) {
  const Graph graph = parse_graph(kStep);
  const StorageId a = graph.ops[0].creates[0];
  const StorageId b = graph.ops[1].creates[0];
  EXPECT_EQ(planned(graph, {}), "f1 f2 f3 f4 b4 b1");
  EXPECT_EQ(planned(graph, {{a, OpId{1}}}), "f1 f2 f3 f4 b4 f1 b1");
  // With its updates; a is at hand.
  EXPECT_EQ(planned(graph, {{b, OpId{3}}}), "f1 f2 f3 f4 f2 f3 b4 b1");
  // a is made on the way: again for its own use, or kept for it.
  EXPECT_EQ(planned(graph, {{a, OpId{1}}, {b, OpId{3}}}), "f1 f2 f3 f4 f1 f2 f3 b4 f1 b1");
  EXPECT_EQ(planned(graph, {{a, OpId{1}}, {b, OpId{3}}}, true), "f1 f2 f3 f4 f1 f2 f3 b4 b1");
}

TEST(Recompute, StopsAtTheMostRuns) {
  const Graph graph = parse_graph(kStep);
  const Recomputation cut = order_with_drops(graph, uses_of(graph), {}, {.max_runs = 3});
  EXPECT_FALSE(cut.complete);
  EXPECT_TRUE(order_with_drops(graph, uses_of(graph), {}).complete);
}

// Whatever is forgotten wherever: the order is legal.
TEST(Recompute, IsAlwaysLegal) {
  int64_t reruns = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(1'000));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    std::vector<Drop> drops;
    for (size_t s = graph.external_count; s < graph.storages.size(); ++s) {
      if (!testing::chance(generator, 0.5)) continue;
      const int64_t last = static_cast<int64_t>(graph.ops.size()) - 1;
      const int64_t created = static_cast<int64_t>(index(*graph.storages[s].creator));
      drops.push_back(
          {static_cast<StorageId>(s), static_cast<OpId>(testing::draw(generator, created, last))});
    }
    const bool share = testing::chance(generator, 0.5);
    const auto made = order_with_drops(graph, uses_of(graph), drops, {.share = share});
    const auto violation = verify(graph, rewrite(graph, made.order), kAnyPeak);
    ASSERT_FALSE(violation) << "seed " << seed << ": " << violation->reason;
    reruns += static_cast<int64_t>(made.order.size() - graph.ops.size());
  }
  EXPECT_GT(reruns, graphs);
}

}  // namespace recompute_test
}  // namespace remat
