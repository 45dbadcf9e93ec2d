// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/ruin.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace ruin_test {

// a and b are idle while big runs; one of them must be made again: 50 ns for a, 3 for b.
constexpr const char* kTwo = R"(remat-graph 1
external x 0 input
op f1 forward kind=k time_ns=50 reads=x creates=a:100
op f2 forward kind=k time_ns=3 reads=x creates=b:100
op big forward kind=k time_ns=5 reads=x creates=c:100
op b3 backward kind=k time_ns=5 reads=c creates=g:0
op b1 backward kind=k time_ns=5 reads=g,a creates=h:0
op b2 backward kind=k time_ns=5 reads=h,b creates=i:0
output i
)";

TEST(Ruin, FindsTheCheaperRerun) {
  const Graph graph = parse_graph(kTwo);
  SearchContext context(graph, {.budget_bytes = 200, .keep_order = true, .seed = 1});
  Effort effort;
  FoundOrder found =
      context.start({OpId{0}, OpId{1}, OpId{2}, OpId{3}, OpId{0}, OpId{4}, OpId{5}}, effort);
  ASSERT_TRUE(found.fits);
  int reports = 0;
  Ruin(context, effort).improve(found, 1'000'000, [&](const FoundOrder& better) {
    ++reports;
    EXPECT_TRUE(better.fits);
  });
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.cost.time_ns, 73 + 3);
  EXPECT_GT(reports, 0);
}

TEST(Ruin, EndsAtOnceWhereEveryOpRunsOnce) {
  const Graph graph = parse_graph(kTwo);
  SearchContext context(graph, {.budget_bytes = 1'000});
  Effort effort;
  FoundOrder found = context.start({OpId{0}, OpId{1}, OpId{2}, OpId{3}, OpId{4}, OpId{5}}, effort);
  const int64_t before = effort.spent();
  Ruin(context, effort).improve(found, 1'000'000);
  EXPECT_EQ(effort.spent(), before);
}

TEST(Ruin, NeverLosesTheBest) {
  int64_t faster = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(100));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    Effort effort;
    SearchContext context(graph, {.seed = seed});
    const std::vector<OpId> order = testing::random_order(generator, graph, 10);
    context.budget_bytes = context.start(order, effort).cost.peak_bytes;
    FoundOrder found = context.start(order, effort);
    const int64_t before_ns = found.cost.time_ns;
    Ruin(context, effort).improve(found, 300'000);
    ASSERT_TRUE(found.fits) << "seed " << seed;
    ASSERT_LE(found.cost.time_ns, before_ns) << "seed " << seed;
    const auto violation = verify(graph, rewrite(graph, found.order), context.budget_bytes);
    ASSERT_FALSE(violation) << "seed " << seed << ": " << violation->reason;
    faster += found.cost.time_ns < before_ns ? 1 : 0;
  }
  EXPECT_GT(faster, graphs / 5);
}

TEST(Ruin, NeverLosesTheBestAmongMoves) {
  int64_t faster = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(100));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    Effort effort;
    SearchContext context(graph, {.seed = seed});
    const std::vector<OpId> order =
        testing::with_random_moves(generator, graph, testing::random_order(generator, graph, 5), 20);
    context.budget_bytes = context.start(order, effort).cost.peak_bytes * 95 / 100;
    FoundOrder found = context.start(order, effort);
    if (!Repair(context, effort).run(found)) continue;
    const int64_t before_ns = found.cost.time_ns;
    Ruin(context, effort).improve(found, 300'000);
    ASSERT_TRUE(found.fits) << "seed " << seed;
    ASSERT_LE(found.cost.time_ns, before_ns) << "seed " << seed;
    const auto violation = verify(graph, rewrite(graph, found.order), context.budget_bytes);
    ASSERT_FALSE(violation) << "seed " << seed << ": " << violation->reason;
    faster += found.cost.time_ns < before_ns ? 1 : 0;
  }
  EXPECT_GT(faster, graphs / 5);
}

// Nothing is brought back, so nothing can be taken out: one of none was drawn, which is a division by zero.
TEST(Ruin, EndsWhereNothingIsBroughtBack) {
  const Graph graph = parse_graph(std::string(kTwo) + "packed a rule=r bytes=1 pack_ns=1 unpack_ns=1\n");
  SearchContext context(graph, {.budget_bytes = 1'000});
  Effort effort;
  const OpId pack{6};
  FoundOrder found = context.start({OpId{0}, OpId{1}, OpId{2}, OpId{3}, pack, OpId{4}, OpId{5}}, effort);
  Ruin(context, effort).improve(found, 1'000'000);
  EXPECT_TRUE(found.fits);
  EXPECT_LE(found.cost.time_ns, 73 + 1);
}

}  // namespace ruin_test
}  // namespace remat
