// SPDX-License-Identifier: Apache-2.0

// Proven bounds against references that share no code with them, on small random graphs with every feature
// of the format: they hold, and they say something.

#include "remat/core/exact/bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "remat/core/effort.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/graph_builder.h"
#include "remat/core/plan.h"
#include "tests/testing/brute_force.h"
#include "tests/testing/fastest_plan.h"
#include "tests/testing/property_count.h"
#include "tests/testing/small_case.h"

namespace remat {
namespace bound_test {

constexpr double kAmpleSeconds = 60;  // not to be reached
constexpr size_t kMostReferenceStates = 8'000;  // nine cases in ten are done by then

TEST(Bound, IsBelowEveryPlanOfSmallGraphs) {
  const uint64_t graphs = testing::property_graphs(60);
  int64_t cases = 0, complete = 0, recomputing = 0, tight = 0, above_once = 0, infeasible = 0, proven_infeasible = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    const testing::SmallCase made = testing::small_case(seed);
    const int64_t once_ns = keep_all_baseline(made.graph).time_ns;
    for (const int64_t budget : made.budgets) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budget));
      ++cases;
      const testing::FastestPlan best =
          testing::fastest_plan(made.graph, budget, {.most_states = kMostReferenceStates});
      if (!best.complete) continue;
      ++complete;
      Effort effort(kAmpleSeconds);
      const auto bound = lower_bound_time_ns(made.graph, budget, effort);
      infeasible += best.time_ns ? 0 : 1;
      if (!bound) {
        ASSERT_FALSE(best.time_ns);
        ++proven_infeasible;
        continue;
      }
      ASSERT_GE(*bound, once_ns);
      if (!best.time_ns) continue;
      ASSERT_LE(*bound, *best.time_ns);
      if (*best.time_ns == once_ns) continue;
      ++recomputing;
      above_once += *bound > once_ns ? 1 : 0;
      tight += *bound == *best.time_ns ? 1 : 0;
    }
  }
  EXPECT_GT(complete, cases * 8 / 10);
  EXPECT_GT(recomputing, static_cast<int64_t>(graphs));
  if (!has_solver()) return;  // what there is without one need not be tight
  EXPECT_GT(above_once, recomputing / 2) << above_once << " of " << recomputing;
  EXPECT_GT(tight, recomputing / 2) << tight << " of " << recomputing;
  EXPECT_GT(proven_infeasible, infeasible / 2) << proven_infeasible << " of " << infeasible;
}

TEST(Bound, PeakIsBelowTheFloorOfSmallGraphs) {
  int64_t graphs = 0, tight = 0;
  for (uint64_t seed = 0; seed < testing::property_graphs(60); ++seed) {
    const testing::SmallCase made = testing::small_case(seed);
    const int64_t bound = lower_bound_peak_bytes(made.graph);
    const int64_t most = keep_all_baseline(made.graph).peak_bytes;
    // From far below the bound, so that a wrong one would be noticed.
    const auto least = testing::brute_force_floor(made.graph, bound / 2, most, Freedom::any_order);
    ASSERT_TRUE(least) << "seed " << seed;
    ASSERT_LE(bound, *least) << "seed " << seed;
    ++graphs;
    tight += bound == *least ? 1 : 0;
  }
  EXPECT_GT(tight, graphs / 3) << tight << " of " << graphs;
}

// 0.002 %: 2 of 100,000; below 50,000 nothing but the bound itself will do.
TEST(Bound, IsAttainedByWhatIsAsGood) {
  EXPECT_DOUBLE_EQ(settling_percent(), 0.002);
  EXPECT_TRUE(attains(100'000, 100'000));
  EXPECT_TRUE(attains(100'000, 99'998));
  EXPECT_FALSE(attains(100'000, 99'997));
  EXPECT_TRUE(attains(40'000, 40'000));
  EXPECT_FALSE(attains(40'000, 39'999));
  for (const int64_t time_ns : {1, 49'999, 50'000, 123'456'789}) {
    EXPECT_TRUE(attains(time_ns, settling_bound_ns(time_ns)));
    EXPECT_FALSE(attains(time_ns, settling_bound_ns(time_ns) - 1));
  }
}

// Eight layers, where a value can only be made again through all layers below: no cut through first
// runs sees what a chain of re-runs needs.
TEST(Bound, OfADeepChainIsAttained) {
  GraphBuilder builder;
  builder.external("x", 1000, Role::input);
  constexpr int kLayers = 8;
  for (int i = 0; i < kLayers; ++i) {
    const std::string before = i == 0 ? "x" : "a" + std::to_string(i - 1);
    builder.op({.name = "f" + std::to_string(i), .kind = "f", .time_ns = 100'000, .reads = {before},
                .creates = {{"a" + std::to_string(i), 1000}}});
  }
  for (int i = kLayers; i-- > 0;) {
    std::vector<std::string> reads = {"a" + std::to_string(i)};
    if (i + 1 < kLayers) reads.push_back("g" + std::to_string(i + 1));
    builder.op({.name = "b" + std::to_string(i), .phase = Phase::backward, .kind = "b",
                .time_ns = 200'000, .reads = reads, .creates = {{"g" + std::to_string(i), 1000}}});
    builder.op({.name = "w" + std::to_string(i), .phase = Phase::backward, .kind = "w",
                .time_ns = 200'000, .reads = {"g" + std::to_string(i)},
                .creates = {{"w" + std::to_string(i), 1}}});
    builder.output("w" + std::to_string(i));
  }
  const Graph graph = std::move(builder).build();
  const int64_t budget = 1000 + 5 * 1000 + 8;
  const Plan found = plan(graph, {.budget_bytes = budget, .strategy = "search"});
  ASSERT_TRUE(found.feasible);
  EXPECT_GT(found.order.size(), graph.ops.size() + 3);
  Effort effort(1.0);
  EXPECT_EQ(lower_bound_time_ns(graph, budget, effort), found.time_ns);
}

}  // namespace bound_test
}  // namespace remat
