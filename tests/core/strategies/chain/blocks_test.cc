// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/chain/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "tests/testing/chain_graphs.h"

namespace remat::detail {
namespace blocks_test {

Chain chain_of(const Graph& graph) {
  const OrderCost cost(graph);
  const ForwardFacts facts = forward_facts(graph, cost, false);
  return chain_blocks(graph, cost, facts, chain_cuts(graph, facts));
}

int64_t bundle_bytes(const Chain& chain, size_t cut) {
  int64_t bytes = 0;
  for (const BundleSpan& span : chain.spans) {
    const bool inside =
        static_cast<size_t>(span.first) <= cut && cut <= static_cast<size_t>(span.last);
    bytes += inside ? span.bytes : 0;
  }
  return bytes;
}

// Between two residual blocks one value crosses; inside, the residual does too, except in the first,
// where it is external.
TEST(ChainBlocks, BundlesOfResidualBlocks) {
  const Chain chain = chain_of(testing::residual_graph(4));
  std::vector<int64_t> bundles;
  for (size_t cut = 0; cut <= chain.blocks.size(); ++cut)
    bundles.push_back(bundle_bytes(chain, cut));
  EXPECT_EQ(bundles, (std::vector<int64_t>{0, 8, 8, 8, 16, 16, 8, 16, 16, 8, 16, 16, 8, 0}));
}

TEST(ChainBlocks, LongSkipsTravelInBundles) {
  const Chain chain = chain_of(testing::u_shaped_graph(6));
  EXPECT_EQ(bundle_bytes(chain, 3), 3 * 8);  // on the way down every level's result is a skip
  EXPECT_EQ(bundle_bytes(chain, 6), 6 * 8);
  EXPECT_EQ(bundle_bytes(chain, 9), 4 * 8);  // three levels up: three skips and the value at hand
}

// A layer of 1000 bytes whose backward reads its input only: it passes in its result's bytes, its own
// tape is empty, and undoing it takes two gradients.
TEST(ChainBlocks, OfEqualLayers) {
  const Graph graph = testing::chain_graph(std::vector<testing::Layer>(5));
  const Chain chain = chain_of(graph);
  ASSERT_EQ(chain.blocks.size(), 6u);
  const ChainBlock& block = chain.blocks[2];
  EXPECT_EQ(block.pass.ops, (std::vector<OpId>{OpId{2}}));
  EXPECT_EQ(block.pass.time_ns, 10);
  EXPECT_EQ(block.pass.peak_bytes, 1000);
  EXPECT_EQ(block.pass_through_bytes, 2000);
  EXPECT_EQ(block.gradient_bytes, 1000);
  EXPECT_EQ(chain.stretch(1, 3).blocks.size(), 2u);
  EXPECT_FALSE(chain.stretch(1, 3).turns);
  EXPECT_TRUE(chain.stretch(1, 6).turns);
}

// If every block is saved and then undone, the blocks add up to what simulate says of the step.
int64_t peak_of_saving_all(const Graph& graph) {
  const Chain chain = chain_of(graph);
  int64_t saved = graph.external_bytes(), peak = 0;
  for (const ChainBlock& block : chain.blocks) {
    peak = std::max({peak, saved + block.first_save_bytes, saved + block.backward_bytes});
    saved += block.savings.front().bytes;
  }
  return peak;
}

int64_t simulated_peak(const Graph& graph) {
  return simulate_peak(graph, rewrite(graph, given_order(graph))).bytes;
}

TEST(ChainBlocks, AddUpToTheWholeStep) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::chain_graph(testing::random_layers(generator, 2 + seed % 20));
    EXPECT_EQ(peak_of_saving_all(graph), simulated_peak(graph)) << "seed " << seed;
  }
  const Graph residual = testing::residual_graph(7);
  EXPECT_EQ(peak_of_saving_all(residual), simulated_peak(residual));
}

}  // namespace blocks_test
}  // namespace remat::detail
