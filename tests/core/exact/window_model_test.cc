// SPDX-License-Identifier: Apache-2.0
#include "remat/core/exact/window_model.h"

#include <gtest/gtest.h>

#include <vector>

#include "remat/core/graph_text.h"
#include "tests/testing/skip.h"

namespace remat {
namespace window_model_test {

// While f3 runs, a, b and c: 4 + 24. With 20, f1 must run again after it: 3 ns.
constexpr const char* kStep = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=3 reads=x creates=a:8
op f2 forward kind=k time_ns=50 reads=a creates=b:8
op f3 forward kind=k time_ns=5 reads=b creates=c:8
op b3 backward kind=k time_ns=5 reads=c,b creates=g:0
op b1 backward kind=k time_ns=5 reads=g,a creates=h:0
output h
)";

class WindowModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_solver()) { REMAT_SKIP("built without HiGHS"); }
    for (size_t i = 0; i < graph.ops.size(); ++i) order.push_back(static_cast<OpId>(i));
  }
  WindowModel::Answer solve(int64_t budget_bytes) {
    return WindowModel(graph, order, cuts, budget_bytes).solve(effort);
  }

  const Graph graph = parse_graph(kStep);
  std::vector<OpId> order;
  std::vector<OpId> cuts = {OpId{2}};
  Effort effort;
};

TEST_F(WindowModelTest, BoundsWhatRerunsTake) {
  EXPECT_EQ(solve(28).least_extra_ns, 0);
  const WindowModel::Answer tight = solve(20);
  EXPECT_FALSE(tight.infeasible);
  EXPECT_EQ(tight.least_extra_ns, 3);
  ASSERT_EQ(tight.reruns.size(), 2u);
  EXPECT_TRUE(tight.reruns[0].empty());
  EXPECT_EQ(tight.reruns[1], (std::vector<OpId>{OpId{0}}));
  EXPECT_TRUE(solve(19).infeasible);
}

TEST_F(WindowModelTest, BoundsPlansInAnyOrderToo) {
  const WindowModel model(graph, dependences_of(graph), cuts, 20);
  EXPECT_EQ(model.solve(effort).least_extra_ns, 3);
}

// relu may write over a, which is not needed later: 4 + 8 instead of 4 + 16.
TEST_F(WindowModelTest, KnowsTheReuseRule) {
  const Graph in_place = parse_graph(R"(remat-graph 1
external x 4 input
op f forward kind=k time_ns=3 reads=x creates=a:8
op relu forward kind=k time_ns=3 reads=a creates=b:8 reuse=b<a
op end forward kind=k time_ns=3 reads=b creates=c:0
output c
)");
  const std::vector<OpId> given = {OpId{0}, OpId{1}, OpId{2}};
  const std::vector<OpId> cut = {OpId{1}};
  EXPECT_FALSE(WindowModel(in_place, given, cut, 12).solve(effort).infeasible);
  EXPECT_TRUE(WindowModel(in_place, given, cut, 11).solve(effort).infeasible);
}

}  // namespace window_model_test
}  // namespace remat
