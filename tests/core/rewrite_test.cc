// SPDX-License-Identifier: Apache-2.0
#include "remat/core/rewrite.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace {

std::vector<OpId> order_of(const Graph& graph, const std::vector<std::string_view>& names) {
  std::vector<OpId> order;
  for (const std::string_view name : names) {
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (graph.ops[i].name == name) order.push_back(static_cast<OpId>(i));
    }
  }
  return order;
}

std::string rewritten(std::string_view graph_text, const std::vector<std::string_view>& names,
                      const RewriteOptions& options = {}) {
  const Graph graph = parse_graph(graph_text);
  try {
    return print_schedule(rewrite(graph, order_of(graph, names), options), graph);
  } catch (const Error& error) {
    return error.what();
  }
}

// d reads a, which stands there twice: verify could not tell which copy it takes, both hold a.
constexpr std::string_view kTwoReaders = R"(remat-graph 1
external x 4 input
op a forward kind=k time_ns=1 reads=x creates=a:8
op b forward kind=k time_ns=1 reads=a creates=b:8 reuse=b<a
op d backward kind=k time_ns=1 reads=a,b creates=d:8 reuse=d<b
output d
)";

TEST(Rewrite, WritesTheSmallStep) {
  EXPECT_EQ(rewritten(testing::kSmallStepGraph,
                      {"warm", "conv", "relu", "norm", "drop", "noise", "loss", "log", "track",
                       "d_drop", "conv", "relu", "d_norm", "reduce", "step"}),
            testing::kSmallStepSchedule);
}

TEST(Rewrite, BindsToTheNewestCopyAndFreesTheOthersEarly) {
  EXPECT_EQ(rewritten(kTwoReaders, {"a", "b", "a", "d"}), R"(remat-schedule 1
run a reads=x creates=a
run b reads=a creates=b reuse=b<a
recompute a reads=x creates=a#1
run d reads=a#1,b creates=d reuse=d<b
free a#1
)");
}

TEST(Rewrite, WithoutReuseEveryResultHasAPlaceOfItsOwn) {
  EXPECT_EQ(rewritten(kTwoReaders, {"a", "b", "d"}, {.reuse = false}), R"(remat-schedule 1
run a reads=x creates=a
run b reads=a creates=b
run d reads=a,b creates=d
free a
free b
)");
}

TEST(Rewrite, SourcesThatAreStillNeededKeepTheirPlace) {
  EXPECT_EQ(rewritten(kTwoReaders, {"a", "b", "d"}), R"(remat-schedule 1
run a reads=x creates=a
run b reads=a creates=b
run d reads=a,b creates=d reuse=d<b
free a
)");
}

TEST(Rewrite, FreesWhatNothingNeedsAtOnce) {
  EXPECT_EQ(rewritten(kTwoReaders, {"a", "a", "b", "d", "b"}), R"(remat-schedule 1
run a reads=x creates=a
free a
recompute a reads=x creates=a#1
run b reads=a#1 creates=b
run d reads=a#1,b creates=d reuse=d<b
recompute b reads=a#1 creates=b#1 reuse=b#1<a#1
free b#1
)");
}

struct IllegalOrder {
  std::vector<std::string_view> names;
  std::string message;
};

TEST(Rewrite, IllegalOrdersAreErrors) {
  const std::vector<IllegalOrder> orders = {
      {{"warm", "conv"}, "[rewrite] op relu is not in the order"},
      {{"warm", "relu"}, "[rewrite] at position 1, relu needs a at version 0"},
      {{"warm", "conv", "norm"}, "norm needs a at version 1"},
      {{"warm", "conv", "relu", "relu"}, "relu needs a at version 0"},
      {{"warm", "warm"}, "[rewrite] op warm stands twice; it must not be re-run"},
      {{"conv", "relu", "norm"}, "norm needs stat at version 1"},
      {{"warm", "noise", "conv", "relu", "norm", "drop"},
       "[rewrite] op drop runs after noise; expected random ops in the order of the graph"},
  };
  for (const IllegalOrder& order : orders) {
    const std::string found = rewritten(testing::kSmallStepGraph, order.names);
    EXPECT_NE(found.find(order.message), std::string::npos) << found;
  }
  const Graph graph = parse_graph(kTwoReaders);
  EXPECT_THROW(rewrite(graph, std::vector{static_cast<OpId>(-1)}), Error);
  EXPECT_THROW(rewrite(graph, std::vector{static_cast<OpId>(3)}), Error);
}

}  // namespace
}  // namespace remat
