// SPDX-License-Identifier: Apache-2.0
#include "remat/core/rewrite.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/moves.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace rewrite_test {

// Ops by their names; moves as "pack m", "offload a", ... and "b5~", which reads packed bytes.
std::string name_in_order(const Graph& graph, OpId id) {
  const std::string& op = graph.op(id).name;
  if (graph.original(id) != id) return op + kPackedMark;
  return graph.is_move(id) ? std::string(name(graph.move(id).kind)) + " " + op : op;
}

std::vector<OpId> order_named(const Graph& graph, const std::vector<std::string_view>& names) {
  std::vector<OpId> order;
  for (const std::string_view wanted : names) {
    for (size_t i = 0; i < graph.op_count(); ++i) {
      const OpId id = static_cast<OpId>(i);
      if (name_in_order(graph, id) == wanted) order.push_back(id);
    }
  }
  return order;
}

std::string rewritten(std::string_view graph_text, const std::vector<std::string_view>& names,
                      const RewriteOptions& options = {}) {
  const Graph graph = parse_graph(graph_text);
  try {
    return print_schedule(rewrite(graph, order_named(graph, names), options), graph);
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

TEST(Rewrite, WritesTheMovingStep) {
  const std::vector<std::string_view> names = {
      "f1", "f2",     "pack m",    "f3",  "f4",         "relu", "f5",
      "pack r", "offload a", "b5~", "prefetch a", "b3",   "unpack m", "b2"};
  EXPECT_EQ(rewritten(testing::kMovingStepGraph, names), testing::kMovingStepSchedule);
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const std::vector<OpId> order = order_named(graph, names);
  EXPECT_EQ(order_of(graph, rewrite(graph, order)), order);
}

// a and b can be offloaded; c is made from both.
constexpr std::string_view kTwoAway = R"(remat-graph 1
external x 4 input
op a forward kind=k time_ns=1 reads=x creates=a:8
op b forward kind=k time_ns=1 reads=x creates=b:8
op s forward kind=k time_ns=1 reads=x creates=s:0
op c backward kind=k time_ns=1 reads=a,b,s creates=c:8 reuse=c<a
output c
packed b rule=r bytes=1 pack_ns=1 unpack_ns=1 readers=c
channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0
)";

TEST(Rewrite, AnOffloadBeginsAfterTheLastUseAndEndsWhereItStands) {
  EXPECT_EQ(rewritten(kTwoAway, {"a", "b", "s", "offload a", "prefetch a", "c"}), R"(remat-schedule 1
run a reads=x creates=a
offload a reads=a creates=a^
run b reads=x creates=b
run s reads=x creates=s
free a
prefetch a reads=a^ creates=a#1
free a^
run c reads=a#1,b,s creates=c reuse=c<a#1
free b
free s
)");
}

// Of writes that begin at once, the one that must end first comes first.
TEST(Rewrite, WritesBeginInTheOrderInWhichTheyCan) {
  EXPECT_EQ(rewritten(kTwoAway, {"b", "a", "offload a", "s", "offload b", "prefetch a", "prefetch b", "c"}),
            R"(remat-schedule 1
run b reads=x creates=b
offload b reads=b creates=b^
run a reads=x creates=a
offload a reads=a creates=a^
free a
run s reads=x creates=s
free b
prefetch a reads=a^ creates=a#1
free a^
prefetch b reads=b^ creates=b#1
free b^
run c reads=a#1,b#1,s creates=c reuse=c<a#1
free b#1
free s
)");
}

TEST(Rewrite, TransfersThatNobodyNeedsAreLeftOut) {
  const std::string plain = rewritten(kTwoAway, {"a", "b", "s", "c"});
  // Brought back by nobody; brought back for nobody; written twice, of which the last one counts.
  EXPECT_EQ(rewritten(kTwoAway, {"a", "offload a", "b", "s", "c"}), plain);
  EXPECT_EQ(rewritten(kTwoAway, {"prefetch a", "a", "b", "s", "c"}), plain);
  EXPECT_EQ(rewritten(kTwoAway, {"a", "b", "s", "c", "offload b", "prefetch b"}), plain);
  EXPECT_EQ(rewritten(kTwoAway, {"a", "offload a", "b", "s", "offload a", "prefetch a", "c"}),
            rewritten(kTwoAway, {"a", "b", "s", "offload a", "prefetch a", "c"}));
}

// What a pack makes is a result like others: made for nobody, it is made and freed.
TEST(Rewrite, PacksThatNobodyNeedsAreMade) {
  EXPECT_EQ(rewritten(kTwoAway, {"a", "b", "pack b", "s", "c"}), R"(remat-schedule 1
run a reads=x creates=a
run b reads=x creates=b
pack b reads=b creates=b~
free b~
run s reads=x creates=s
run c reads=a,b,s creates=c reuse=c<a
free b
free s
)");
}

TEST(Rewrite, AnOpReadsPackedBytesInPlaceOfTheValue) {
  EXPECT_EQ(rewritten(kTwoAway, {"a", "b", "pack b", "s", "c~"}), R"(remat-schedule 1
run a reads=x creates=a
run b reads=x creates=b
pack b reads=b creates=b~
free b
run s reads=x creates=s
run c reads=a,b~,s creates=c reuse=c<a
free b~
free s
)");
}

// c is an output and takes a's place: it reads packed bytes once, the value another time.
TEST(Rewrite, ARunThatReadsPackedBytesIsARunOfItsOp) {
  EXPECT_EQ(rewritten(kTwoAway, {"a", "b", "pack b", "s", "c~", "c"}), R"(remat-schedule 1
run a reads=x creates=a
run b reads=x creates=b
pack b reads=b creates=b~
run s reads=x creates=s
run c reads=a,b~,s creates=c
free b~
free c
recompute c reads=a,b,s creates=c#1 reuse=c#1<a
free b
free s
)");
}

TEST(Rewrite, IllegalMovesAreErrors) {
  const std::vector<std::pair<std::vector<std::string_view>, std::string>> orders = {
      {{"a", "b", "s", "unpack b", "c"}, "[rewrite] at position 3, b needs b~ at version 0, which no copy holds"},
      {{"a", "b", "s", "c~"}, "[rewrite] at position 3, c needs b~ at version 0"},
      {{"pack b", "a", "b", "s", "c"}, "[rewrite] at position 0, b needs b at version 0"},
      {{"b", "s", "prefetch a", "c"}, "[rewrite] at position 2, a needs a^ at version 0"},
      {{"b", "s", "offload a", "prefetch a", "c", "a"}, "[rewrite] at position 2, a needs a at version 0"},
      {{"a", "b", "s", "offload a", "c"}, "no error"},  // left out
      {{"a", "b", "s", "offload b", "c", "prefetch b", "c"},
       "[rewrite] at position 4, c needs b, which was offloaded at position 3; expected a prefetch or its "
       "creator in between"},
      {{"a", "b", "s", "offload b", "pack b", "prefetch b", "c"}, "b needs b, which was offloaded at position 3"},
      {{"a", "b", "s", "offload a", "prefetch a"}, "[rewrite] op c is not in the order"},
  };
  for (const auto& [names, message] : orders) {
    const std::string found = rewritten(kTwoAway, names);
    if (message == "no error") {
      EXPECT_TRUE(found.starts_with("remat-schedule 1")) << found;
    } else {
      EXPECT_NE(found.find(message), std::string::npos) << found;
    }
  }
  const Graph graph = parse_graph(kTwoAway);
  EXPECT_THROW(rewrite(graph, std::vector{static_cast<OpId>(graph.op_count())}), Error);
}

// a is an output: it comes back, or its offload is left out.
TEST(Rewrite, AnOutputThatIsOffloadedComesBack) {
  constexpr std::string_view kOutput = R"(remat-graph 1
op a forward kind=k time_ns=1 creates=a:8
op b forward kind=k time_ns=1 reads=a creates=b:8
output a
output b
channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0
)";
  EXPECT_EQ(rewritten(kOutput, {"a", "b", "offload a"}), rewritten(kOutput, {"a", "b"}));
  EXPECT_EQ(rewritten(kOutput, {"a", "offload a", "prefetch a", "b", "offload a", "prefetch a"}), R"(remat-schedule 1
run a creates=a
offload a reads=a creates=a^
free a
prefetch a reads=a^ creates=a#1
free a^
run b reads=a#1 creates=b
offload a reads=a#1 creates=a^#1
free a#1
prefetch a reads=a^#1 creates=a#2
free a^#1
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

}  // namespace rewrite_test
}  // namespace remat
