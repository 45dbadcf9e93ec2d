// SPDX-License-Identifier: Apache-2.0
#include "remat/core/mutual_order.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"

namespace remat {
namespace mutual_order_test {

// Two random ops, two `once` ops and two ops with effects; none needs another.
constexpr const char* kIndependent = R"(remat-graph 1
external x 4 input
external e 4 buffer
external f 4 buffer
op r1 forward kind=k time_ns=1 reads=x creates=a:4 random
op r2 forward kind=k time_ns=1 reads=x creates=b:4 random
op o1 forward kind=k time_ns=1 reads=x creates=c:4 once
op o2 forward kind=k time_ns=1 reads=x creates=d:4 once
op e1 forward kind=k time_ns=1 reads=x creates=g:4 effects=e
op e2 forward kind=k time_ns=1 reads=x creates=h:4 effects=f
)";

TEST(MutualOrder, IsKeptWithinEachClassAndNotBetweenThem) {
  const Graph graph = parse_graph(kIndependent);
  for (size_t a = 0; a < graph.ops.size(); ++a) {
    for (size_t b = 0; b < graph.ops.size(); ++b) {
      EXPECT_EQ(keep_mutual_order(graph.ops[a], graph.ops[b]), a / 2 == b / 2) << a << ", " << b;
    }
  }
}

TEST(MutualOrder, IsWhatRewriteDemands) {
  const Graph graph = parse_graph(kIndependent);
  for (size_t at = 0; at + 1 < graph.ops.size(); ++at) {
    std::vector<OpId> order = given_order(graph);
    std::swap(order[at], order[at + 1]);
    if (at % 2 == 0) {
      EXPECT_THROW(rewrite(graph, order), Error) << at;
    } else {
      EXPECT_NO_THROW(rewrite(graph, order)) << at;
    }
  }
}

}  // namespace mutual_order_test
}  // namespace remat
