// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/cost.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"

namespace remat {
namespace cost_test {

bool rewritable(const Graph& graph, const std::vector<OpId>& order) {
  try {
    rewrite(graph, order);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The fast evaluation is no model of its own: same peak, time and bytes at every op as simulate.
TEST(OrderCost, EqualsSimulateOnRandomOrders) {
  const uint64_t graphs = testing::property_graphs(5'000);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    OrderCost cost(graph);
    const std::vector<OpId> order =
        testing::random_order(generator, graph, static_cast<int>(testing::draw(generator, 0, 30)));
    const Schedule schedule = rewrite(graph, order);
    const Simulation expected = simulate(graph, schedule);
    const int64_t budget = expected.peak_bytes / 2;
    const OrderCost::Result found = cost.evaluate(order, budget);
    ASSERT_TRUE(found.legal) << "seed " << seed;
    ASSERT_EQ(found.peak_bytes, expected.peak_bytes) << "seed " << seed;
    ASSERT_EQ(found.time_ns, expected.time_ns) << "seed " << seed;
    size_t position = 0;
    double overflow = 0;
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      if (schedule.steps[s].kind == StepKind::free) continue;
      const int64_t bytes = expected.timeline[s].bytes;
      ASSERT_EQ(cost.resident_bytes()[position], bytes) << "seed " << seed << " at " << position;
      if (bytes > budget) overflow += static_cast<double>(bytes - budget);
      ++position;
    }
    ASSERT_EQ(position, order.size());
    ASSERT_DOUBLE_EQ(found.overflow, overflow);
  }
}

TEST(OrderCost, EqualsSimulateWithMoves) {
  const uint64_t graphs = testing::property_graphs(8'000);
  constexpr uint64_t kOthers = 1'000'000;  // than those of fake_backend_test.cc
  uint64_t waiting = 0;
  for (uint64_t seed = kOthers; seed < kOthers + graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    OrderCost cost(graph);
    const std::vector<OpId> order = testing::with_random_moves(
        generator, graph, testing::random_order(generator, graph, 15), 40);
    const Schedule schedule = rewrite(graph, order);
    const Simulation expected = simulate(graph, schedule);
    // Needless transfers stand nowhere in the schedule, offloads elsewhere.
    const std::vector<OpId> needed = order_of(graph, schedule);
    for (const std::vector<OpId>& each : {order, needed}) {
      const OrderCost::Result found = cost.evaluate(each, 0);
      ASSERT_TRUE(found.legal) << "seed " << seed;
      ASSERT_EQ(found.peak_bytes, expected.peak_bytes) << "seed " << seed;
      ASSERT_EQ(found.time_ns, expected.time_ns) << "seed " << seed;
    }
    std::vector<int64_t> begin_ns;
    cost.find_times(needed, begin_ns);
    ASSERT_EQ(begin_ns.back(), expected.time_ns);
    size_t position = 0;
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      const ScheduleStep& step = schedule.steps[s];
      if (step.kind == StepKind::free || step.kind == StepKind::offload) continue;
      while (needed[position] != step.op) ++position;
      ASSERT_EQ(cost.resident_bytes()[position], expected.timeline[s].bytes) << "seed " << seed;
      ASSERT_EQ(begin_ns[position], expected.timeline[s].begin_ns) << "seed " << seed;
      ++position;
    }
    waiting += expected.waited_ns > 0;
  }
  EXPECT_GT(waiting, graphs / 10);
}

// Breaking a legal order at random: the fast check and rewrite agree on what is legal. Ops of the
// classes whose mutual order matters are left where they are; that rule is not OrderCost's.
void agrees_on_legality(bool with_moves, uint64_t graphs) {
  testing::RandomGraphOptions plain;
  plain.random_rate = plain.effect_rate = plain.once_rate = 0;
  int64_t legal = 0, illegal = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator, plain);
    if (with_moves) testing::add_random_moves(generator, graph);
    OrderCost cost(graph);
    std::vector<OpId> order = given_order(graph);
    if (with_moves) order = testing::with_random_moves(generator, graph, std::move(order), 20);
    for (int change = 0; change < 3; ++change) {
      const size_t at =
          static_cast<size_t>(testing::draw(generator, 0, static_cast<int64_t>(order.size()) - 2));
      if (testing::chance(generator, 0.5)) {
        std::swap(order[at], order[at + 1]);
      } else {
        const OpId op = static_cast<OpId>(
            testing::draw(generator, 0, static_cast<int64_t>(graph.op_count()) - 1));
        if (graph.rerunnable(op)) order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), op);
      }
      const bool expected = rewritable(graph, order);
      ASSERT_EQ(cost.evaluate(order, 0).legal, expected) << "seed " << seed;
      ++(expected ? legal : illegal);
    }
  }
  EXPECT_GT(legal, 100);
  EXPECT_GT(illegal, 100);
}

TEST(OrderCost, AgreesWithRewriteOnLegality) { agrees_on_legality(false, testing::property_graphs(5'000)); }

TEST(OrderCost, AgreesWithRewriteOnLegalityOfMoves) {
  agrees_on_legality(true, testing::property_graphs(4'000));
}

}  // namespace cost_test
}  // namespace remat
