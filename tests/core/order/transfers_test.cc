// SPDX-License-Identifier: Apache-2.0

// Where a byte takes a nanosecond each way and transfers begin at once, the arithmetic is short.

#include "remat/core/order/transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace transfers_test {

constexpr std::string_view kChannel =
    "channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0\n";

bool is_transfer(const Graph& graph, OpId id) {
  const StepKind kind = step_kind_of(graph, id);
  return kind == StepKind::offload || kind == StepKind::prefetch;
}

// Ops by their names, transfers as ">a" (offload) and "<a" (prefetch).
std::string name_of(const Graph& graph, OpId id) {
  const StepKind kind = step_kind_of(graph, id);
  return (kind == StepKind::offload ? ">" : kind == StepKind::prefetch ? "<" : "") + graph.op(id).name;
}

struct Case {
  Graph graph;

  explicit Case(const std::string& ops)
      : graph(parse_graph("remat-graph 1\nexternal x 4 input\n" + ops + std::string(kChannel))) {}

  std::vector<OpId> order(const std::string& names) const {
    std::vector<OpId> ids;
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = std::min(names.find(' ', begin), names.size());
      const std::string wanted = names.substr(begin, end - begin);
      for (size_t i = 0; i < graph.op_count(); ++i) {
        if (name_of(graph, static_cast<OpId>(i)) == wanted) ids.push_back(static_cast<OpId>(i));
      }
      begin = end + 1;
    }
    return ids;
  }

  std::string in_time(const std::string& names) const {
    const OrderCost cost(graph);
    std::string found;
    for (const OpId id : with_transfers_in_time(graph, cost, order(names))) {
      found += (found.empty() ? "" : " ") + name_of(graph, id);
    }
    return found;
  }

  Simulation simulated(const std::string& names) const {
    return simulate(graph, rewrite(graph, order(names)));
  }
};

// The picture in transfers.h: 50 bytes of a are written from f1's end on, and read before b1 needs them.
const Case& one_value() {
  static const Case made(R"(op f1 forward kind=k time_ns=10 reads=x creates=a:50
op f2 forward kind=k time_ns=30 reads=x creates=b:1
op f3 forward kind=k time_ns=20 reads=b creates=c:1
op f4 forward kind=k time_ns=20 reads=c creates=d:1
op b4 backward kind=k time_ns=25 reads=d creates=e:1
op b3 backward kind=k time_ns=25 reads=e creates=f:1
op b1 backward kind=k time_ns=10 reads=f,a creates=g:1
output g
)");
  return made;
}

TEST(TransfersInTime, NobodyWaitsWhereThatIsPossible) {
  const Case& one = one_value();
  const std::string before = "f1 >a f2 f3 f4 b4 b3 <a b1";
  // The offload waits for the write of 50 ns, b1 for the read of 50.
  EXPECT_EQ(one.simulated(before).waited_ns, 50 + 50);
  // Written from 10 to 60: f2 and f3 take until 60. b1 begins at 130; b4 and b3 take 50 before it.
  const std::string after = one.in_time(before);
  EXPECT_EQ(after, "f1 f2 f3 >a f4 <a b4 b3 b1");
  EXPECT_EQ(one.simulated(after).waited_ns, 0);
  EXPECT_EQ(one.simulated(after).time_ns, 10 + 30 + 20 + 20 + 25 + 25 + 10);
}

TEST(TransfersInTime, WhatIsInTimeStaysWhereItIs) {
  const std::string in_time = "f1 f2 f3 >a f4 <a b4 b3 b1";
  EXPECT_EQ(one_value().in_time(in_time), in_time);
  // Later than need be, or earlier: bytes that stay longer than they must.
  EXPECT_EQ(one_value().in_time("f1 f2 f3 f4 >a <a b4 b3 b1"), in_time);
}

TEST(TransfersInTime, OrdersWithoutTransfersStayAsTheyAre) {
  EXPECT_EQ(one_value().in_time("f1 f2 f3 f4 b4 b3 b1"), "f1 f2 f3 f4 b4 b3 b1");
  EXPECT_EQ(one_value().in_time(""), "");
}

// Written one after the other, and read so that the one that is used first comes back first.
TEST(TransfersInTime, TransfersShareTheChannel) {
  const Case two(R"(op f1 forward kind=k time_ns=10 reads=x creates=a:40
op f2 forward kind=k time_ns=10 reads=x creates=b:20
op f3 forward kind=k time_ns=30 reads=x creates=c:1
op f4 forward kind=k time_ns=30 reads=c creates=d:1
op b4 backward kind=k time_ns=30 reads=d creates=e:1
op b3 backward kind=k time_ns=30 reads=e creates=f:1
op b2 backward kind=k time_ns=10 reads=f,b creates=g:1
op b1 backward kind=k time_ns=10 reads=g,a creates=h:1
output h
)");
  // a is written from 10 to 50, where f3 ends, b from 50 to 70: f4 ends at 80.
  // b2 begins at 140, b1 at 150. a is read last, from 110 on, b before it, from 90 on, which is inside of
  // b4 (80 to 110): it begins with b4.
  EXPECT_EQ(two.in_time("f1 >a f2 >b f3 f4 b4 b3 <b b2 <a b1"), "f1 f2 f3 >a f4 >b <b b4 <a b3 b2 b1");
  EXPECT_EQ(two.simulated("f1 f2 f3 >a f4 >b <b b4 <a b3 b2 b1").waited_ns, 0);
}

// 80 ns of transfers do not fit beside 60 ns of ops: somebody waits.
TEST(TransfersInTime, AReadFollowsItsWrite) {
  const Case tight(R"(op f1 forward kind=k time_ns=10 reads=x creates=a:40
op f2 forward kind=k time_ns=30 reads=x creates=b:1
op f3 forward kind=k time_ns=30 reads=b creates=c:1
op b1 backward kind=k time_ns=10 reads=c,a creates=d:1
output d
)");
  const std::string after = tight.in_time("f1 >a f2 f3 <a b1");
  EXPECT_EQ(after, "f1 f2 f3 >a <a b1");
  EXPECT_EQ(tight.simulated(after).waited_ns, 40);  // b1 for the read; the write has ended at 50
}

TEST(TransfersInTime, WhatIsWrittenOnceIsReadOften) {
  const Case often(R"(op f1 forward kind=k time_ns=10 reads=x creates=a:20
op f2 forward kind=k time_ns=20 reads=x creates=b:1
op f3 forward kind=k time_ns=20 reads=b creates=c:1
op g1 forward kind=k time_ns=5 reads=c,a creates=d:1
op f5 forward kind=k time_ns=20 reads=d creates=e:1
op g2 forward kind=k time_ns=5 reads=e,a creates=f:1
output f
)");
  EXPECT_EQ(often.in_time("f1 >a f2 f3 <a g1 f5 <a g2"), "f1 f2 >a <a f3 g1 <a f5 g2");
  EXPECT_EQ(often.simulated("f1 f2 >a <a f3 g1 <a f5 g2").waited_ns, 0);
}

// While a is away it is made again and used: the prefetch does not come before that, and the copy that f3
// uses is not the one that was written.
TEST(TransfersInTime, DoNotPassAnotherCopy) {
  const Case again(R"(op f1 forward kind=k time_ns=10 reads=x creates=a:20
op f2 forward kind=k time_ns=50 reads=x creates=b:1
op f3 forward kind=k time_ns=10 reads=b,a creates=c:1
op f4 forward kind=k time_ns=5 reads=c creates=d:1
op b1 backward kind=k time_ns=10 reads=d,a creates=e:1
output e
)");
  const std::string after = again.in_time("f1 >a f2 f1 f3 f4 <a b1");
  EXPECT_EQ(after, "f1 f2 >a f1 f3 <a f4 b1");
  EXPECT_EQ(again.simulated(after).waited_ns, 20 - 5);
}

TEST(TransfersInTime, AnOutputComesBackForTheEnd) {
  const Case output(R"(op f1 forward kind=k time_ns=10 reads=x creates=a:20
op f2 forward kind=k time_ns=30 reads=x,a creates=b:1
op f3 forward kind=k time_ns=30 reads=b creates=c:1
op f4 forward kind=k time_ns=30 reads=c creates=d:1
output a
output d
)");
  // Nobody waits for the end of its read: it begins as late as it can.
  const std::string after = output.in_time("f1 f2 >a f3 f4 <a");
  EXPECT_EQ(after, "f1 f2 f3 >a <a f4");
  EXPECT_EQ(output.simulated(after).time_ns, 100);
}

std::vector<OpId> runs_of(const Graph& graph, const std::vector<OpId>& order) {
  std::vector<OpId> runs;
  for (const OpId id : order) {
    if (!is_transfer(graph, id)) runs.push_back(id);
  }
  return runs;
}

std::vector<OpId> transfers_of(const Graph& graph, const std::vector<OpId>& order) {
  std::vector<OpId> transfers;
  for (const OpId id : order) {
    if (is_transfer(graph, id)) transfers.push_back(id);
  }
  std::ranges::sort(transfers);
  return transfers;
}

// Runs stay as they are, transfers are the same ones but for those that rewrite leaves out, and what was
// legal is. A prefetch that nobody needed, before any offload, ended in an exception; another, moved, took
// the place of one that was needed.
TEST(TransfersInTimeProperty, LegalOrdersStayLegalAndOfTheSameRuns) {
  const uint64_t graphs = testing::property_graphs(4'000);
  uint64_t with_transfers = 0, less = 0, more = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    if (!graph.channel) continue;
    const std::vector<OpId> order = testing::with_random_moves(
        generator, graph, testing::random_order(generator, graph, 10), 60);
    const OrderCost cost(graph);
    const std::vector<OpId> changed = with_transfers_in_time(graph, cost, order);
    ASSERT_EQ(runs_of(graph, changed), runs_of(graph, order)) << "seed " << seed;
    const std::vector<OpId> needed = order_of(graph, rewrite(graph, order));
    ASSERT_EQ(transfers_of(graph, changed), transfers_of(graph, needed)) << "seed " << seed;
    ASSERT_EQ(testing::plan_fault(graph, changed, std::numeric_limits<int64_t>::max()), "")
        << "seed " << seed;
    const Simulation before = simulate(graph, rewrite(graph, order));
    const Simulation after = simulate(graph, rewrite(graph, changed));
    with_transfers += !transfers_of(graph, order).empty();
    less += after.time_ns < before.time_ns;
    more += after.time_ns > before.time_ns;
  }
  RecordProperty("with_transfers", std::to_string(with_transfers));
  RecordProperty("less", std::to_string(less));
  RecordProperty("more", std::to_string(more));
  EXPECT_GT(with_transfers, graphs / 2);
  EXPECT_GT(less, 10 * more);
}

}  // namespace transfers_test
}  // namespace remat
