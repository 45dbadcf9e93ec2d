// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/uses.h"

#include <gtest/gtest.h>

#include <string>

#include "remat/core/graph_text.h"

namespace remat {
namespace uses_test {

constexpr const char* kStep = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=1 reads=x creates=a:8
op f2 forward kind=k time_ns=1 reads=a,a creates=b:8,empty:0
op f3 forward kind=k time_ns=1 updates=b
op f4 forward kind=k time_ns=1 reads=b creates=c:8,out:8
op once forward kind=k time_ns=1 reads=x creates=once:8 once
op b4 backward kind=k time_ns=1 reads=c,empty,once creates=g:8
op b1 backward kind=k time_ns=1 reads=g,a,b,out,once creates=h:8
output out
output h
)";

std::string names(const Graph& graph, const std::vector<OpId>& ops) {
  std::string names;
  for (const OpId op : ops) names += (names.empty() ? "" : " ") + graph.op(op).name;
  return names;
}

TEST(Uses, AreInOrderAndOnceForEachOp) {
  const Graph graph = parse_graph(kStep);
  const Uses uses = uses_of(graph);
  EXPECT_EQ(names(graph, uses[graph.ops[0].creates[0]]), "f2 b1");
  EXPECT_EQ(names(graph, uses[graph.ops[1].creates[0]]), "f3 f4 b1");
}

TEST(Uses, TurnAtTheFirstOpThatIsNotForward) {
  EXPECT_EQ(turning_point(parse_graph(kStep)), OpId{5});
  EXPECT_EQ(turning_point(Graph{}), OpId{0});
  // One phase only: the op at which most is there, 4 + 8 + 8.
  EXPECT_EQ(turning_point(parse_graph(R"(remat-graph 1
external steps 4 optimizer_state
op count optimizer kind=aten::add_ time_ns=1 updates=steps
op f forward kind=aten::f time_ns=1 creates=a:8
op d backward kind=aten::d time_ns=1 reads=a creates=b:8
output b
)")),
            OpId{2});
  EXPECT_EQ(turning_point(parse_graph(R"(remat-graph 1
op f forward kind=aten::f time_ns=1 creates=a:8
op u optimizer kind=aten::u time_ns=1 reads=a creates=b:8
output b
)")),
            OpId{1});
  EXPECT_EQ(turning_point(parse_graph(R"(remat-graph 1
external x 4 input
op f forward kind=k time_ns=1 reads=x creates=a:8
op g forward kind=k time_ns=1 reads=a creates=b:8
op h forward kind=k time_ns=1 reads=b creates=c:1
output c
)")),
            OpId{1});
}

// Not: c, needed again at once; empty; out, an output; once, which must not be made again.
TEST(Uses, CandidatesAreIdleAcrossTheTurnAndCanBeMadeAgain) {
  const Graph graph = parse_graph(kStep);
  const std::vector<Candidate> found = candidates_of(graph, uses_of(graph), turning_point(graph));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(graph.storage(found[0].storage).name, "a");
  EXPECT_EQ(found[0].last_before, OpId{1});
  EXPECT_EQ(found[0].first_after, OpId{6});
  EXPECT_EQ(found[0].version, 0);
  EXPECT_EQ(graph.storage(found[1].storage).name, "b");
  EXPECT_EQ(found[1].version, 1);
  EXPECT_EQ(found[1].last_after, OpId{6});
  EXPECT_EQ(graph.storage(found[2].storage).name, "c");  // `once` stands between f4 and b4
}

}  // namespace uses_test
}  // namespace remat
