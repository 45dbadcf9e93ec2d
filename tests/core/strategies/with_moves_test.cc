// SPDX-License-Identifier: Apache-2.0

// What plans owe their caller on graphs whose values can be packed and offloaded. Every plan goes through
// testing::plan_fault: verify, simulate, and the addresses where there are any.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/moves.h"
#include "remat/core/order/reruns.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/strategies/strategies.h"
#include "tests/testing/chain_graphs.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_moves.h"

namespace remat {
namespace with_moves_test {

Graph random_graph(uint64_t seed) {
  std::mt19937_64 generator(seed);
  testing::RandomGraphOptions shape;
  shape.forward_ops = static_cast<int>(testing::draw(generator, 2, 16));
  shape.optimizer_phase = testing::chance(generator, 0.5);
  Graph graph = testing::random_graph(generator, shape);
  testing::add_random_moves(generator, graph);
  return graph;
}

int64_t once_ns(const Graph& graph) {
  int64_t sum_ns = 0;
  for (const Op& op : graph.ops) sum_ns += op.time_ns;
  return sum_ns;
}

std::map<MoveKind, int64_t> moves_of(const Graph& graph, const std::vector<OpId>& order) {
  std::map<MoveKind, int64_t> count;
  for (const OpId id : order) {
    if (graph.is_move(id)) ++count[graph.move(id).kind];
  }
  return count;
}

int64_t runs_of(const Graph& graph, const std::vector<OpId>& order) {
  return std::ranges::count_if(order, [&](OpId id) { return !graph.is_move(graph.original(id)); });
}

std::vector<OpId> without_dead(const Graph& graph, std::vector<OpId> order) {
  const SearchContext context(graph, {});
  Effort effort;
  erase_dead(graph, context.cost, order, effort);
  return order;
}

PlanOptions quick(int64_t budget_bytes, std::string strategy = "search") {
  return {.budget_bytes = budget_bytes,
          .strategy = std::move(strategy),
          .max_orders = 200};
}

// Floor - 1, floor, between, ample.
std::vector<int64_t> budgets_of(const Graph& graph) {
  const int64_t least = floor(graph).bytes;
  const int64_t most = keep_all_baseline(graph).peak_bytes;
  return {std::max<int64_t>(0, least - 1), least, (least + most) / 2, most};
}

TEST(WithMoves, ArePlansThatKeepTheirPromise) {
  const uint64_t graphs = testing::property_graphs(150);
  std::map<MoveKind, int64_t> used;
  int64_t feasible = 0, infeasible = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    const Graph graph = random_graph(seed);
    const std::vector<int64_t> budgets = budgets_of(graph);
    for (size_t i = 0; i < budgets.size(); ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budgets[i]));
      const Plan made = plan(graph, quick(budgets[i]));
      ASSERT_EQ(testing::plan_fault(graph, made, budgets[i]), "");
      if (i > 0) {
        ASSERT_TRUE(made.feasible) << "the floor is reachable";
      }
      ++(made.feasible ? feasible : infeasible);
      // What a plan file holds is the order that rewrite makes of it.
      ASSERT_EQ(order_of(graph, rewrite(graph, made.order)), made.order) << "a transfer is needless";
      if (made.feasible) {
        ASSERT_EQ(without_dead(graph, made.order), made.order) << "something is made for nobody";
      }
      if (made.feasible && made.lower_bound_time_ns) {
        ASSERT_LE(*made.lower_bound_time_ns, made.time_ns);
      }
      for (const auto& [kind, count] : moves_of(graph, made.order)) used[kind] += count;
    }
  }
  EXPECT_GT(feasible, static_cast<int64_t>(2 * graphs));
  EXPECT_GT(infeasible, static_cast<int64_t>(graphs) / 3);
  for (const MoveKind kind : {MoveKind::pack, MoveKind::unpack, MoveKind::offload, MoveKind::prefetch,
                              MoveKind::read_packed}) {
    EXPECT_GT(used[kind], static_cast<int64_t>(graphs) / 10) << name(kind);
  }
}

// The same search without them is where this one starts.
TEST(WithMoves, AreNeverWorseThanWithout) {
  const uint64_t graphs = testing::property_graphs(120);
  int64_t better = 0, fits_only_with = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    const Graph graph = random_graph(seed);
    const Graph bare = without_moves(graph);
    const int64_t least = floor(bare).bytes;
    ASSERT_LE(floor(graph).bytes, least) << "seed " << seed;
    for (const int64_t budget : {least - 1, least, (least + keep_all_baseline(graph).peak_bytes) / 2}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budget));
      const Plan with = plan(graph, quick(std::max<int64_t>(0, budget)));
      const Plan without = plan(bare, quick(std::max<int64_t>(0, budget)));
      ASSERT_EQ(testing::plan_fault(graph, with, std::max<int64_t>(0, budget)), "");
      if (!without.feasible) {
        fits_only_with += with.feasible;
        continue;
      }
      ASSERT_TRUE(with.feasible);
      ASSERT_LE(with.time_ns, without.time_ns);
      better += with.time_ns < without.time_ns;
    }
  }
  EXPECT_GT(better, static_cast<int64_t>(graphs) / 3);
  EXPECT_GT(fits_only_with, static_cast<int64_t>(graphs) / 10);
}

// pack_only and offload_only.
TEST(WithMoves, OnlyOneKindReRunsNothingAndSaysWhatFits) {
  const uint64_t graphs = testing::property_graphs(300);
  std::map<std::string, int64_t> feasible, infeasible, moving;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    const Graph graph = random_graph(seed);
    const int64_t most = keep_all_baseline(graph).peak_bytes;
    for (const std::string strategy : {"pack_only", "offload_only"}) {
      for (const int64_t budget : {int64_t{0}, most * 6 / 10, most * 8 / 10, most}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + strategy + ", budget " + std::to_string(budget));
        const Plan made = plan(graph, quick(budget, strategy));
        ASSERT_EQ(testing::plan_fault(graph, made, budget), "");
        ASSERT_EQ(made.strategy, strategy);
        ASSERT_EQ(runs_of(graph, made.order), static_cast<int64_t>(graph.ops.size()));
        std::map<MoveKind, int64_t> moves = moves_of(graph, made.order);
        if (strategy == "pack_only") {
          ASSERT_EQ(moves[MoveKind::offload] + moves[MoveKind::prefetch], 0);
        } else {
          ASSERT_EQ(moves[MoveKind::pack] + moves[MoveKind::unpack] + moves[MoveKind::read_packed], 0);
        }
        ++(made.feasible ? feasible : infeasible)[strategy];
        moving[strategy] += runs_of(graph, made.order) < static_cast<int64_t>(made.order.size());
      }
    }
  }
  for (const std::string strategy : {"pack_only", "offload_only"}) {
    EXPECT_GT(feasible[strategy], static_cast<int64_t>(graphs) / 2);  // of four budgets each
    EXPECT_GT(infeasible[strategy], static_cast<int64_t>(graphs) / 2);
    EXPECT_GT(moving[strategy], static_cast<int64_t>(graphs) / 2);
  }
}

TEST(WithMoves, SameInputGivesTheSamePlan) {
  for (uint64_t seed = 0; seed < testing::property_graphs(20); ++seed) {
    const Graph graph = random_graph(seed);
    const int64_t budget = (floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 2;
    for (const std::string strategy : {"pack_only", "offload_only", "search", "auto"}) {
      const Plan first = plan(graph, quick(budget, strategy));
      const Plan second = plan(graph, quick(budget, strategy));
      EXPECT_EQ(first.order, second.order) << strategy << ", seed " << seed;
      EXPECT_EQ(first.time_ns, second.time_ns) << strategy << ", seed " << seed;
    }
  }
}

TEST(WithMoves, KeepOrderKeepsTheOrderOfFirstRuns) {
  int64_t moving = 0;
  const uint64_t graphs = testing::property_graphs(60);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    const Graph graph = random_graph(seed);
    const int64_t budget = (floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 2;
    for (const std::string strategy : {"pack_only", "offload_only", "search"}) {
      PlanOptions options = quick(budget, strategy);
      options.keep_order = true;
      const Plan made = plan(graph, options);
      ASSERT_EQ(testing::plan_fault(graph, made, budget), "") << strategy << ", seed " << seed;
      ASSERT_TRUE(keeps_order(graph, made.order)) << strategy << ", seed " << seed;
      moving += !moves_of(graph, made.order).empty();
    }
  }
  EXPECT_GT(moving, static_cast<int64_t>(graphs));
}

// And are never slower than without moves, though what moves leaves gaps that are hard to fill.
TEST(WithMoves, PlacedPlansFitWithTheirAddresses) {
  const uint64_t graphs = testing::property_graphs(80);
  uint64_t placed = 0, transfers = 0, recomputing = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    const Graph graph = random_graph(seed);
    const int64_t budget = (floor(graph).bytes + 2 * keep_all_baseline(graph).peak_bytes) / 3;
    PlanOptions options = quick(budget);
    options.placed = true;
    const Plan made = plan(graph, options);
    const Plan without = plan(without_moves(graph), options);
    if (without.feasible) {
      ASSERT_TRUE(made.feasible) << "seed " << seed;
      ASSERT_LE(made.time_ns, without.time_ns) << "seed " << seed;
    }
    if (!made.feasible) continue;
    ++placed;
    ASSERT_TRUE(made.placement) << "seed " << seed;
    ASSERT_EQ(testing::plan_fault(graph, made, budget), "") << "seed " << seed;
    ASSERT_LE(graph.external_bytes() + made.placement->arena_bytes, budget) << "seed " << seed;
    transfers += made.placement->channel_bytes > 0;
    recomputing += moves_of(graph, made.order).empty();
  }
  EXPECT_GT(placed, graphs / 3);
  EXPECT_GT(transfers, graphs / 20);
  EXPECT_GT(recomputing, graphs / 20);
}

// The floor that a plan carries is that of the graph with its moves, though the plan may need none of them.
TEST(WithMoves, TheFloorOfAPlanIsThatOfTheGraph) {
  for (uint64_t seed = 0; seed < testing::property_graphs(60); ++seed) {
    const Graph graph = random_graph(seed);
    const int64_t least = floor(graph).bytes;
    for (const int64_t budget : budgets_of(graph)) {
      const Plan made = plan(graph, quick(budget));
      ASSERT_EQ(floor(graph, made).bytes, least) << "seed " << seed << ", budget " << budget;
      ASSERT_FALSE(graph.is_move(floor(graph, made).op));
    }
  }
}

TEST(WithMoves, GraphsOfNoOpAndOfOne) {
  const std::string channel =
      "channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0\n";
  const Graph none = parse_graph("remat-graph 1\nexternal x 8 input\n" + channel);
  const Graph one = parse_graph(
      "remat-graph 1\nexternal x 8 input\nop f forward kind=k time_ns=3 reads=x creates=a:8\noutput a\n" +
      channel);
  for (const Strategy& strategy : strategies()) {
    const Plan of_none = plan(none, quick(8, std::string(strategy.name)));
    EXPECT_TRUE(of_none.feasible) << strategy.name;
    EXPECT_TRUE(of_none.order.empty()) << strategy.name;
    EXPECT_FALSE(plan(none, quick(7, std::string(strategy.name))).feasible) << strategy.name;
    const Plan of_one = plan(one, quick(16, std::string(strategy.name)));
    EXPECT_EQ(testing::plan_fault(one, of_one, 16), "") << strategy.name;
    EXPECT_TRUE(of_one.feasible) << strategy.name;
    EXPECT_EQ(of_one.time_ns, 3) << strategy.name;
    EXPECT_FALSE(plan(one, quick(15, std::string(strategy.name))).feasible) << strategy.name;
  }
}

// a, b, c and g are there at b4: 4 + 300 + 1. Without a 205, and a is idle from f2 to b1.
std::string idle_value(const std::string& more) {
  return "remat-graph 1\n"
         "external x 4 input\n"
         "op f1 forward kind=k time_ns=50 reads=x creates=a:100\n"
         "op f2 forward kind=k time_ns=10 reads=a creates=r:1\n"
         "op wait forward kind=k time_ns=200 reads=r creates=s:1\n"
         "op f3 forward kind=k time_ns=60 reads=s creates=b:100\n"
         "op f4 forward kind=k time_ns=60 reads=b creates=c:100\n"
         "op b4 backward kind=k time_ns=60 reads=c,b creates=g:1\n"
         "op b3 backward kind=k time_ns=200 reads=g creates=h:1\n"
         "op b1 backward kind=k time_ns=50 reads=h,a creates=i:1\n"
         "output i\n" +
         more;
}
constexpr int64_t kIdleValueOnceNs = 50 + 10 + 200 + 60 + 60 + 60 + 200 + 50;

// Making a again takes 50 ns. Packing it takes 3 + 4; offloading it 100 beside `wait` and 100 beside b3:
// none.
TEST(WithMoves, TheCheapestWayIsTaken) {
  const int64_t once = kIdleValueOnceNs;
  const std::string packing = "packed a rule=any bytes=10 pack_ns=3 unpack_ns=4\n";
  const std::string reading = "packed a rule=any bytes=10 pack_ns=3 readers=b1\n";
  const std::string fast =
      "channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0\n";
  const std::string slow = "channel write_bytes_per_s=100000000 read_bytes_per_s=100000000 latency_ns=0\n";
  const auto time_of = [&](const std::string& more) {
    const Graph graph = parse_graph(idle_value(more));
    const Plan made = plan(graph, quick(220));
    EXPECT_EQ(testing::plan_fault(graph, made, 220), "") << more;
    EXPECT_TRUE(made.feasible) << more;
    return made.time_ns;
  };
  EXPECT_EQ(time_of(""), once + 50);
  EXPECT_EQ(time_of(packing), once + 3 + 4);
  EXPECT_EQ(time_of(reading), once + 3);
  EXPECT_EQ(time_of(fast), once);
  EXPECT_EQ(time_of(packing + fast), once);
  EXPECT_EQ(time_of(slow), once + 50);  // 1000 ns each way
  EXPECT_EQ(time_of(packing + slow), once + 7);
}

TEST(WithMoves, NoneAreMadeWhereEverythingFits) {
  const Graph graph = parse_graph(idle_value(
      "packed a rule=any bytes=10 pack_ns=0 unpack_ns=0\n"
      "channel write_bytes_per_s=1000000000 read_bytes_per_s=1000000000 latency_ns=0\n"));
  for (const std::string strategy : {"pack_only", "offload_only", "search", "auto"}) {
    const Plan made = plan(graph, quick(305, strategy));
    EXPECT_EQ(testing::plan_fault(graph, made, 305), "");
    EXPECT_TRUE(moves_of(graph, made.order).empty()) << strategy;
    EXPECT_EQ(made.time_ns, kIdleValueOnceNs) << strategy;
  }
}

// Strategies that do not search leave moves alone.
TEST(WithMoves, ConstructionsDoNotKnowThem) {
  for (uint64_t seed = 0; seed < testing::property_graphs(30); ++seed) {
    const Graph graph = random_graph(seed);
    const Graph bare = without_moves(graph);
    const int64_t budget = keep_all_baseline(graph).peak_bytes * 7 / 10;
    for (const Strategy& strategy : strategies()) {
      if (strategy.searches || strategy.name.ends_with("_only")) continue;
      const Plan with = plan(graph, quick(budget, std::string(strategy.name)));
      ASSERT_EQ(testing::plan_fault(graph, with, budget), "") << strategy.name << ", seed " << seed;
      EXPECT_EQ(with.order, plan(bare, quick(budget, std::string(strategy.name))).order)
          << strategy.name << ", seed " << seed;
    }
  }
}

TEST(WithMoves, WithoutAnyTheirStrategiesKeepEverything) {
  const Graph graph = parse_graph(idle_value(""));
  for (const std::string strategy : {"pack_only", "offload_only"}) {
    const Plan made = plan(graph, quick(220, strategy));
    EXPECT_FALSE(made.feasible);
    EXPECT_EQ(made.order, given_order(graph));
    EXPECT_EQ(made.peak_bytes, 305);
  }
}

// ResNet-50, batch 32, at a third of its memory: 10 % more time by recomputing alone.
// Close to the floor of many ops nearly everything has to move, which takes many orders to find; what only
// recomputes takes many times a step there.
TEST(WithMoves, AreFoundAtTheFloorOfManyOpsToo) {
  Graph graph = testing::chain_graph(std::vector<testing::Layer>(400));
  graph.channel = ChannelModel{.write_bytes_per_s = 200'000'000'000, .read_bytes_per_s = 200'000'000'000};
  add_moves(graph);
  const int64_t budget = floor(without_moves(graph)).bytes;
  const Plan made = plan(graph, quick(budget));
  EXPECT_EQ(testing::plan_fault(graph, made, budget), "");
  EXPECT_TRUE(made.feasible);
  EXPECT_LE(made.time_ns, 2 * once_ns(graph));
  EXPECT_GT(plan(without_moves(graph), quick(budget)).time_ns, 10 * once_ns(graph));
}

class ResNetWithChannel : public ::testing::Test {
 protected:
  static std::string text() {
    std::ifstream file(REMAT_GRAPHS_DIR "/resnet50.graph");
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  static Plan planned(const Graph& graph, const std::string& strategy) {
    const int64_t budget = keep_all_baseline(graph).peak_bytes / 3;
    Plan made = plan(graph, {.budget_bytes = budget, .strategy = strategy, .max_orders = 20'000});
    EXPECT_EQ(testing::plan_fault(graph, made, budget), "");
    return made;
  }
  static Graph with_channel(const std::string& rate) {
    return parse_graph(text() + "channel write_bytes_per_s=" + rate + " read_bytes_per_s=" + rate +
                       " latency_ns=50000 alignment=4096\n");
  }
};

TEST_F(ResNetWithChannel, AFastOneCostsNextToNothing) {
  const Graph graph = with_channel("4000000000");
  const Plan made = planned(graph, "search");
  EXPECT_TRUE(made.feasible);
  EXPECT_LE(made.time_ns, once_ns(graph) + once_ns(graph) / 200);
  EXPECT_GT(moves_of(graph, made.order)[MoveKind::offload], 10);
  const Plan only = planned(graph, "offload_only");
  EXPECT_TRUE(only.feasible);
  EXPECT_LE(only.time_ns, once_ns(graph) + once_ns(graph) / 50);
}

// A megabyte per second: a transfer of the smallest activation takes longer than the step's savings.
TEST_F(ResNetWithChannel, ASlowOneChangesNothing) {
  const Graph graph = with_channel("1000000");
  const Plan made = planned(graph, "search");
  const Plan bare = planned(without_moves(graph), "search");
  EXPECT_TRUE(made.feasible);
  EXPECT_TRUE(moves_of(graph, made.order).empty());
  EXPECT_LE(made.time_ns, bare.time_ns);
  EXPECT_GE(made.time_ns, bare.time_ns - bare.time_ns / 50);
}

}  // namespace with_moves_test
}  // namespace remat
