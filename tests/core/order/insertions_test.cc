// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/insertions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "remat/core/graph_text.h"

namespace remat {
namespace {

// a (8 bytes, 3 ns) and b (8 bytes, 50 ns) are idle while f3 runs: 4 + 8 + 8 + 8.
constexpr const char* kGraph = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=3 reads=x creates=a:8
op f2 forward kind=k time_ns=50 reads=a creates=b:8
op f3 forward kind=k time_ns=5 reads=x creates=c:8
op b3 backward kind=k time_ns=5 reads=c,b creates=g:0
op b1 backward kind=k time_ns=5 reads=g,a creates=h:0
output h
)";

class Insertions : public ::testing::Test {
 protected:
  Insertions() : graph(parse_graph(kGraph)), context(graph, {.budget_bytes = 20}), finder(context) {
    for (size_t i = 0; i < graph.ops.size(); ++i) order.push_back(static_cast<OpId>(i));
    context.start(order, effort);
    finder.look_at(order, effort);
  }

  std::string name(const Insertion& insertion) const {
    return graph.storage(context.cost.storage(insertion.target)).name;
  }

  const Graph graph;
  SearchContext context;
  InsertionFinder finder;
  std::vector<OpId> order;
  Effort effort;
};

TEST_F(Insertions, ComeByTheBestRatio) {
  const std::vector<Insertion> found = finder.at(2, 10, {}, effort);
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(name(found.front()), "a");
  EXPECT_EQ(found.front().block, (std::vector<OpId>{OpId{0}}));
  EXPECT_EQ(found.front().time_ns, 3);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_GE(ratio(found[i - 1].gain, found[i - 1].time_ns),
              ratio(found[i].gain, found[i].time_ns));
  }
  EXPECT_EQ(finder.at(2, 1, {}, effort).size(), 1u);
}

// To forget b, f2 must run again; where a is to be made anew as well, f1 too.
TEST_F(Insertions, BringWhatTheyAreMadeFrom) {
  const std::vector<Insertion> found = finder.at(2, 10, {}, effort);
  EXPECT_TRUE(std::ranges::any_of(found, [&](const Insertion& insertion) {
    return name(insertion) == "b" && insertion.block.back() == OpId{1};
  }));
}

TEST_F(Insertions, LeaveOutWhatIsTabu) {
  for (const Insertion& insertion : finder.at(2, 10, OpId{0}, effort)) {
    EXPECT_EQ(std::ranges::count(insertion.block, OpId{0}), 0);
  }
  EXPECT_FALSE(finder.at(2, 10, OpId{0}, effort).empty());
}

TEST_F(Insertions, RemoveTheOverflowThatTheyPromise) {
  const std::vector<Insertion> found = finder.at(2, 1, {}, effort);
  const double before = context.evaluate(order, effort).overflow;
  const auto after = context.evaluate(with_insertions(order, found), effort);
  EXPECT_TRUE(after.legal);
  EXPECT_DOUBLE_EQ(before - after.overflow, found.front().gain);
}

TEST_F(Insertions, ArePutInAtTheirPlaces) {
  std::vector<Insertion> two(2);
  two[0].before = 1;
  two[0].block = {OpId{7}};
  two[1].before = 4;
  two[1].block = {OpId{8}, OpId{9}};
  EXPECT_EQ(with_insertions(order, two), (std::vector<OpId>{OpId{0}, OpId{7}, OpId{1}, OpId{2},
                                                            OpId{3}, OpId{8}, OpId{9}, OpId{4}}));
}

}  // namespace
}  // namespace remat
