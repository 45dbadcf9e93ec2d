// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/chain/savings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/testing/chain_graphs.h"

namespace remat::detail {
namespace savings_test {

Chain chain_of(const Graph& graph) {
  const OrderCost cost(graph);
  const ForwardFacts facts = forward_facts(graph, cost, false);
  return chain_blocks(graph, cost, facts, chain_cuts(graph, facts));
}

int64_t forward_time_ns(const Graph& graph, const std::vector<OpId>& ops) {
  int64_t sum = 0;
  for (const OpId op : ops) sum += graph.op(op).phase == Phase::forward ? graph.op(op).time_ns : 0;
  return sum;
}

// From f1's input on: keep a1 ... a4, or fewer and run the others again. Keeping a4 alone, which is the
// bundle, costs three of the four layers.
TEST(PartialSavings, OfFourEqualLayers) {
  const Graph graph = testing::chain_graph(std::vector<testing::Layer>(8));
  const std::vector<ChainBlock::Saving> savings = partial_savings(chain_of(graph).stretch(0, 4), 10);
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const ChainBlock::Saving& saving : savings) found.emplace_back(saving.bytes, saving.undo_ns);
  EXPECT_EQ(found, (std::vector<std::pair<int64_t, int64_t>>{{3000, 10}, {2000, 20}, {1000, 30}}));
}

// None beats another, all spare bytes, and each does what it says: what is undone holds the backward of
// every block, in reverse, and re-runs of just that time.
TEST(PartialSavings, AreUnbeatenAndComplete) {
  int64_t seen = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 generator(seed);
    const Graph graph = testing::chain_graph(testing::random_layers(generator, 12));
    const Chain part = chain_of(graph).stretch(2, 8);
    int64_t whole_tape_bytes = 0;
    std::vector<OpId> backward;
    for (const ChainBlock& block : part.blocks) whole_tape_bytes += block.savings.front().bytes;
    for (size_t b = part.blocks.size(); b-- > 0;) {
      const std::vector<OpId>& undo = part.blocks[b].savings.front().undo;
      backward.insert(backward.end(), undo.begin(), undo.end());
    }
    int64_t bytes = whole_tape_bytes, undo_ns = 0;
    for (const ChainBlock::Saving& saving : partial_savings(part, 5)) {
      EXPECT_LT(saving.bytes, bytes);
      EXPECT_GT(saving.undo_ns, undo_ns);
      bytes = saving.bytes;
      undo_ns = saving.undo_ns;
      EXPECT_EQ(forward_time_ns(graph, saving.undo), saving.undo_ns);
      EXPECT_EQ(forward_time_ns(graph, saving.again.ops), saving.again.time_ns);
      std::vector<OpId> undone;
      std::ranges::copy_if(saving.undo, std::back_inserter(undone),
                           [&](OpId op) { return graph.op(op).phase != Phase::forward; });
      EXPECT_EQ(undone, backward);
      ++seen;
    }
  }
  EXPECT_GT(seen, 100);
}

}  // namespace savings_test
}  // namespace remat::detail
