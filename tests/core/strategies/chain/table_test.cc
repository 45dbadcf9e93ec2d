// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/chain/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/testing/chain_graphs.h"
#include "tests/testing/revolve.h"

namespace remat::detail {
namespace table_test {

Chain chain_of(const Graph& graph) {
  const OrderCost cost(graph);
  const ForwardFacts facts = forward_facts(graph, cost, false);
  return chain_blocks(graph, cost, facts, chain_cuts(graph, facts));
}

// Two gradients and c activations in c + 2 slots of one layer each; the input, external, is a checkpoint
// too. Revolve counts the n - 1 steps of the first pass, which are no re-runs.
TEST(ChainTable, EqualLayersMeetGriewanksNumbers) {
  for (const size_t n : {2u, 5u, 13u, 30u}) {
    const Chain chain = chain_of(testing::chain_graph(std::vector<testing::Layer>(n)));
    const ChainTable table(chain, 1000, 10);
    const int64_t steps = static_cast<int64_t>(n);
    for (int64_t c = 1; c <= 8; ++c) {
      EXPECT_EQ(table.time_ns(static_cast<size_t>(c) + 2),
                static_cast<float>(10 * (testing::revolve(steps, c) - (steps - 1))))
          << n << " layers, " << c << " activations";
    }
    EXPECT_TRUE(std::isinf(table.time_ns(1)));
  }
}

int64_t rerun_ns(const ChainStep& step) {
  const ChainBlock::Saving& saving = step.block->savings[step.saving];
  switch (step.action) {
    case ChainAction::pass: return step.first ? 0 : step.block->pass.time_ns;
    case ChainAction::save: return saving.undo_ns + (step.first ? 0 : saving.again.time_ns);
    case ChainAction::tape: return step.first ? 0 : step.block->tape.time_ns;
    case ChainAction::held_tape: return step.first ? 0 : step.block->held_tape.time_ns;
    case ChainAction::backward: return 0;
  }
  return 0;
}

// The steps take the time that the table says, run every block for the first time in order, and undo
// each once, in reverse.
TEST(ChainTable, StepsTakeTheTimeOfTheTable) {
  int64_t recomputing = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 generator(seed);
    const Chain chain =
        chain_of(testing::chain_graph(testing::random_layers(generator, 3 + seed % 9)));
    const ChainTable table(chain, 100, 200);
    for (size_t slot = 20; slot <= 200; slot += 20) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", slot " + std::to_string(slot));
      if (std::isinf(table.time_ns(slot))) continue;
      int64_t time_ns = 0;
      std::vector<const ChainBlock*> first, undone;
      for (const ChainStep& step : table.steps(slot)) {
        time_ns += rerun_ns(step);
        if (step.action == ChainAction::backward) {
          undone.push_back(step.block);
        } else if (step.first) {
          first.push_back(step.block);
        }
      }
      EXPECT_EQ(static_cast<float>(time_ns), table.time_ns(slot));
      ASSERT_EQ(first.size(), chain.blocks.size());
      ASSERT_EQ(undone.size(), chain.blocks.size());
      for (size_t b = 0; b < first.size(); ++b) {
        EXPECT_EQ(first[b], &chain.blocks[b]);
        EXPECT_EQ(undone[b], &chain.blocks[chain.blocks.size() - 1 - b]);
      }
      recomputing += time_ns > 0 ? 1 : 0;
    }
    for (size_t slot = 1; slot <= 200; ++slot)
      EXPECT_LE(table.time_ns(slot), table.time_ns(slot - 1));
  }
  EXPECT_GT(recomputing, 50);
}

}  // namespace table_test
}  // namespace remat::detail
