// SPDX-License-Identifier: Apache-2.0

// Wide graphs without a backward pass, as planners of the literature are measured on: what fits is
// mostly a matter of the order.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace layered_graphs_test {

// Layers of `width` nodes; each reads some of the layer before, now and then of an earlier one. Nodes
// come in a random order of those that are legal.
Graph layered_graph(int layers, int width, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const int nodes = layers * width;
  std::vector<std::set<int>> reads(static_cast<size_t>(nodes));
  for (int node = width; node < nodes; ++node) {
    const int layer = node / width;
    for (int64_t edge = testing::draw(generator, 2, 5); edge > 0; --edge) {
      const int64_t back = testing::chance(generator, 0.85) ? 1 : testing::draw(generator, 1, layer);
      const int64_t beside = node % width + testing::draw(generator, -2, 2);
      const int64_t from = (layer - back) * width + std::clamp<int64_t>(beside, 0, width - 1);
      reads[static_cast<size_t>(node)].insert(static_cast<int>(from));
    }
  }
  std::string text = "remat-graph 1\n";
  std::vector<bool> done(static_cast<size_t>(nodes), false);
  const auto is_ready = [&](int node) {
    return !done[static_cast<size_t>(node)] &&
           std::ranges::all_of(reads[static_cast<size_t>(node)],
                               [&](int from) { return done[static_cast<size_t>(from)]; });
  };
  for (int count = 0; count < nodes; ++count) {
    std::vector<int> ready;
    for (int node = 0; node < nodes && ready.size() < 20; ++node) {
      if (is_ready(node)) ready.push_back(node);
    }
    const int node =
        ready[static_cast<size_t>(testing::draw(generator, 0, static_cast<int64_t>(ready.size()) - 1))];
    done[static_cast<size_t>(node)] = true;
    const std::string name = "n" + std::to_string(node);
    text += "op " + name + " forward kind=test::op time_ns=" +
            std::to_string(testing::draw(generator, 1, 1000));
    std::string list;
    for (const int from : reads[static_cast<size_t>(node)]) {
      list += (list.empty() ? "" : ",") + std::string("n") + std::to_string(from) + "s";
    }
    if (!list.empty()) text += " reads=" + list;
    text += " creates=" + name + "s:" + std::to_string(10 * testing::draw(generator, 10, 600)) + "\n";
  }
  return parse_graph(text);
}

// Counted in orders, so that a slow machine plans the same.
Plan plan_at(const Graph& graph, double share, int64_t moves) {
  const double peak = static_cast<double>(keep_all_baseline(graph).peak_bytes);
  const int64_t budget = static_cast<int64_t>(share * peak);
  Plan made = plan(graph, {.budget_bytes = budget, .strategy = "search", .max_orders = moves});
  EXPECT_FALSE(verify(graph, rewrite(graph, made.order), made.feasible ? budget : made.peak_bytes));
  return made;
}

double overhead_percent(const Graph& graph, const Plan& made) {
  const int64_t once_ns = keep_all_baseline(graph).time_ns;
  return 100.0 * static_cast<double>(made.time_ns - once_ns) / static_cast<double>(once_ns);
}

void expect_overhead_at_most(double percent, const Graph& graph, double share, int64_t moves) {
  const Plan made = plan_at(graph, share, moves);
  EXPECT_TRUE(made.feasible);
  EXPECT_LE(overhead_percent(graph, made), percent);
}

// With moves that cost a whole order each, and re-runs before other orders, this cost 46 %.
TEST(LayeredGraphs, AnotherOrderSavesMostReRuns) {
  expect_overhead_at_most(16, layered_graph(25, 20, 0), 0.55, 80'000);
}

// Likewise, neither fitted.
TEST(LayeredGraphs, BudgetsCloseToTheFloorAreMet) {
  expect_overhead_at_most(20, layered_graph(10, 10, 0), 0.55, 100'000);
  expect_overhead_at_most(20, layered_graph(10, 10, 2), 0.55, 100'000);
}

}  // namespace layered_graphs_test
}  // namespace remat
