// SPDX-License-Identifier: Apache-2.0

// Segments of k layers, on a chain of equal ones, whose peaks and times can be worked out on paper.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/strategies/strategies.h"
#include "tests/testing/chain_graphs.h"
#include "tests/testing/plan_fault.h"

namespace remat {
namespace every_k_test {

Graph equal_layers(int64_t n) {
  return testing::chain_graph(std::vector<testing::Layer>(static_cast<size_t>(n)));
}

// c = floor((n-1)/k) values cross from one segment into the next and are kept; the last segment has
// r = n - ck layers. In units of 1000 bytes:
// - Last segment, at b_n: x, c kept, r-1 made again, g_n, g_(n-1):            c + r + 2
// - Segment j < c, at its last layer: x, j kept, k-1 made again, 2 gradients: j + k + 2, j = c-1 worst.
// Every layer runs twice except the last of each segment: its result is kept, or, for a_n, is there.
int64_t peak_bytes(int64_t n, int64_t k) {
  const int64_t crossing = (n - 1) / k;
  const int64_t rest = n - crossing * k;
  return std::max(crossing + rest + 2, crossing >= 1 ? crossing + k + 1 : 0) * 1000;
}

TEST(EveryK, KeepsWhatCrossesFromOneSegmentIntoTheNext) {
  for (int64_t n = 1; n <= 64; ++n) {
    const Graph graph = equal_layers(n);
    for (int64_t k = 1; k <= n; ++k) {
      const Plan made = plan_every_k(graph, {.every_k = k});
      EXPECT_EQ(testing::plan_fault(graph, made, kNoBudget), "") << n << " layers, k = " << k;
      EXPECT_EQ(made.peak_bytes, peak_bytes(n, k)) << n << " layers, k = " << k;
      const int64_t segments = (n + k - 1) / k;
      EXPECT_EQ(made.time_ns - graph.total_time_ns(), (n - segments) * 10)
          << n << " layers, k = " << k;
    }
  }
}

// With k = √n both terms are √n: x, two gradients and at most 2√n activations (+1 for rounding).
TEST(EveryK, RootOfNSegmentsNeedRootOfNActivations) {
  for (int64_t n = 1; n <= 1024; n = n * 3 / 2 + 1) {
    const Plan made = plan_every_k(equal_layers(n), {});
    EXPECT_LE(static_cast<double>(made.peak_bytes),
              (2 * std::sqrt(static_cast<double>(n)) + 4) * 1000)
        << n;
  }
}

// Two ops of one scope are one layer: with k = 1 the value between them is forgotten, that at the end of
// the layer is kept.
TEST(EveryK, ALayerIsARunOfOpsWithOneScope) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
op f1 forward kind=k time_ns=1 reads=x creates=a:8 scope=one
op f2 forward kind=k time_ns=1 reads=a creates=b:8 scope=one
op f3 forward kind=k time_ns=1 reads=b creates=c:8 scope=two
op f4 forward kind=k time_ns=1 reads=c creates=l:8 scope=two
op g3 backward kind=k time_ns=1 reads=l,b creates=d:8
op g2 backward kind=k time_ns=1 reads=d,b,a creates=e:8
output e
)");
  const Plan made = plan_every_k(graph, {.every_k = 1});
  ASSERT_EQ(made.decisions.size(), 2u);
  EXPECT_TRUE(made.decisions[0].recomputed);   // a
  EXPECT_FALSE(made.decisions[1].recomputed);  // b
  EXPECT_EQ(made.decisions[1].reason, "it leads from segment 0 to segment 1 (k = 1 of 2 layers)");
}

TEST(EveryK, FewerThanNoLayersAreAnError) {
  EXPECT_THROW(plan_every_k(equal_layers(3), {.every_k = -1}), Error);
}

}  // namespace every_k_test
}  // namespace remat
