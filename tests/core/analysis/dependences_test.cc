// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/dependences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace dependences_test {

std::vector<OpId> ops(std::initializer_list<int> numbers) {
  std::vector<OpId> list;
  for (const int number : numbers) list.push_back(static_cast<OpId>(number));
  return list;
}

TEST(Dependences, AreThoseOfEveryLegalOrder) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
external w 4 param
op f0 forward kind=k time_ns=1 reads=x,w creates=a:8 random
op f1 forward kind=k time_ns=1 reads=x creates=b:8
op f2 forward kind=k time_ns=1 updates=a
op f3 forward kind=k time_ns=1 reads=a,b creates=c:8 random
op up forward kind=k time_ns=1 reads=c updates=w
op end forward kind=k time_ns=1 reads=w creates=d:8
)");
  const Dependences found = dependences_of(graph);
  EXPECT_EQ(found.before[0], ops({}));
  EXPECT_EQ(found.before[2], ops({0}));        // the value that it updates
  EXPECT_EQ(found.before[3], ops({0, 1, 2}));  // random after random; b; a as f2 leaves it
  EXPECT_EQ(found.before[4], ops({0, 3}));     // f0 reads w as it was before; c
  EXPECT_EQ(found.before[5], ops({4}));        // w as it is after
  EXPECT_EQ(found.after[0], ops({2, 3, 4}));
  const std::vector<bool> after_f1 = reached(found.after, OpId{1});
  EXPECT_EQ(after_f1, (std::vector<bool>{false, false, false, true, true, true}));
}

// An order of first runs is legal if and only if it respects them.
TEST(Dependences, AgreeWithRewriteOnNeighbours) {
  int64_t legal = 0, illegal = 0;
  const int64_t graphs = static_cast<int64_t>(testing::property_graphs(500));
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(graphs); ++seed) {
    std::mt19937_64 generator(seed);
    testing::RandomGraphOptions options;
    options.update_rate = 0;  // an update makes a value: an earlier reader could have it made again
    const Graph graph = testing::random_graph(generator, options);
    const Dependences found = dependences_of(graph);
    for (size_t at = 0; at + 1 < graph.ops.size(); ++at) {
      std::vector<OpId> order = given_order(graph);
      std::swap(order[at], order[at + 1]);
      const bool dependent = std::ranges::count(found.before[at + 1], static_cast<OpId>(at)) > 0;
      bool accepted = true;
      try {
        rewrite(graph, order);
      } catch (const Error&) {
        accepted = false;
      }
      ASSERT_EQ(accepted, !dependent) << "seed " << seed << " at " << at;
      ++(accepted ? legal : illegal);
    }
  }
  EXPECT_GT(legal, graphs);
  EXPECT_GT(illegal, graphs);
}

}  // namespace dependences_test
}  // namespace remat
