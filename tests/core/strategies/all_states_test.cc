// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/all_states.h"

#include <gtest/gtest.h>

#include "remat/core/graph_text.h"
#include "remat/core/strategies/shares.h"

namespace remat {
namespace all_states_test {

constexpr const char* kTwoPlaces = R"(remat-graph 1
op f forward kind=k time_ns=1 creates=a:8
op g forward kind=k time_ns=1 creates=b:8
op h forward kind=k time_ns=1 reads=a,b creates=c:8 reuse=c<a,c<b
output c
)";

TEST(AllStates, AreThoseOfASmallGraph) {
  const Graph graph = parse_graph(R"(remat-graph 1
op f forward kind=k time_ns=1 creates=a:8
op g forward kind=k time_ns=1 creates=b:8
op h forward kind=k time_ns=1 reads=b creates=c:8
op i forward kind=k time_ns=1 reads=a,c creates=d:8
output d
)");
  Effort effort;
  // In the given order a is there beside b and c; in another one it comes after them.
  EXPECT_FALSE(search_all_states(graph, {.budget_bytes = 23, .keep_order = true}, effort).feasible);
  const StateSearchResult found = search_all_states(graph, {.budget_bytes = 24}, effort);
  EXPECT_TRUE(found.complete && found.feasible);
  EXPECT_EQ(found.time_ns, 4);
}

// rewrite takes the first place that is free, the search would take the best.
TEST(AllStates, LeaveOutGraphsWithSeveralPlacesForAResult) {
  Effort effort;
  EXPECT_FALSE(search_all_states(parse_graph(kTwoPlaces), {}, effort).complete);
}

TEST(AllStates, EndWithTheirShare) {
  Effort effort;
  const PlanOptions options{.budget_bytes = 100, .time_limit_seconds = 0};
  EXPECT_FALSE(search_all_states(parse_graph("remat-graph 1\nop f forward kind=k time_ns=1 creates=a:8\noutput a\n"),
                                 options, effort)
                   .complete);
}

}  // namespace all_states_test
}  // namespace remat
