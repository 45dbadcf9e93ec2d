// SPDX-License-Identifier: Apache-2.0

// The exact planner and the proven bounds against exhaustive search, on small random graphs with
// every feature of the format.

#include <gtest/gtest.h>

#include <algorithm>
#include <algorithm>
#include <random>

#include "remat/core/effort.h"
#include "remat/core/exact/bound.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/strategies/window_search.h"
#include "remat/core/verify.h"
#include "tests/testing/brute_force.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace {

constexpr double kAmpleSeconds = 60;  // not to be reached

testing::RandomGraphOptions small_shape(std::mt19937_64& generator) {
  testing::RandomGraphOptions options;
  options.forward_ops = static_cast<int>(testing::draw(generator, 2, 6));
  options.externals = 2;
  options.optimizer_phase = testing::chance(generator, 0.3);
  options.largest_bytes = testing::chance(generator, 0.5) ? 4096 : 8;
  if (testing::chance(generator, 0.3)) options.update_rate = 0.5;
  if (testing::chance(generator, 0.3)) options.update_rate = 0;
  if (testing::chance(generator, 0.3)) options.reuse_rate = 0.9;
  return options;
}

// These are exact methods on both sides: a ninetieth of what the other properties are tried on.
uint64_t small_graphs() { return std::max<uint64_t>(10, testing::property_graphs(18'000) / 90); }

struct Case {
  Graph graph;
  std::vector<int64_t> budgets;
};

Case random_case(uint64_t seed) {
  std::mt19937_64 generator(seed);
  Case made{.graph = testing::random_graph(generator, small_shape(generator)), .budgets = {}};
  const int64_t least = lower_bound_peak_bytes(made.graph);
  const int64_t most = keep_all_baseline(made.graph).peak_bytes;
  for (const int64_t share : {0, 25, 50, 75, 95}) {
    made.budgets.push_back(least + (most - least) * share / 100);
  }
  return made;
}

void expect_right(const Graph& graph, const std::vector<OpId>& order, int64_t budget,
                  const std::string& where) {
  const auto violation = verify(graph, rewrite(graph, order), budget);
  EXPECT_FALSE(violation) << where << ": " << violation->reason;
}

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<int64_t>(numbers.size() / 2),
                   numbers.end());
  return numbers[numbers.size() / 2];
}

// A search that gives up has proven something too.
TEST(BruteForce, NeverClaimsMoreThanTheOptimum) {
  int claims = 0;
  for (uint64_t seed = 0; seed < small_graphs(); ++seed) {
    const Case made = random_case(seed);
    for (const int64_t budget : made.budgets) {
      const StateSearchResult all = testing::brute_force(made.graph, budget);
      if (!all.complete || !all.feasible) continue;
      const int64_t optimum = all.time_ns - keep_all_baseline(made.graph).time_ns;
      Effort effort;
      ASSERT_EQ(all.least_extra_ns, optimum) << "seed " << seed;
      for (const size_t most_states : {1, 10, 100, 1000}) {
        const StateSearchResult some =
            search_states(made.graph, budget, effort, {.max_states = most_states});
        ASSERT_LE(some.least_extra_ns, optimum) << "seed " << seed << ", states " << most_states;
        claims += !some.complete && some.least_extra_ns > 0;
      }
      const StateSearchResult enough =
          search_states(made.graph, budget, effort, {.enough_extra_ns = optimum / 2});
      ASSERT_GE(enough.least_extra_ns, optimum / 2) << "seed " << seed;
      ASSERT_LE(enough.least_extra_ns, optimum) << "seed " << seed;
    }
  }
  EXPECT_GT(claims, 5);
}

// What the search says is a right plan of just that time within the budget.
TEST(BruteForce, PlansAreRight) {
  for (uint64_t seed = 0; seed < small_graphs(); ++seed) {
    const Case made = random_case(seed);
    for (const int64_t budget : made.budgets) {
      int64_t previous = std::numeric_limits<int64_t>::max();
      for (const Freedom freedom : {Freedom::given_order, Freedom::any_order}) {
        const std::string where = "seed " + std::to_string(seed) + ", budget " +
                                  std::to_string(budget) + ", freedom " +
                                  std::to_string(static_cast<int>(freedom));
        const StateSearchResult found = testing::brute_force(made.graph, budget, freedom);
        ASSERT_TRUE(found.complete) << where;
        if (!found.feasible) {
          EXPECT_EQ(previous, std::numeric_limits<int64_t>::max()) << where;
          continue;
        }
        expect_right(made.graph, found.order, budget, where);
        EXPECT_EQ(simulate_peak(made.graph, rewrite(made.graph, found.order)).time_ns,
                  found.time_ns);
        EXPECT_LE(found.time_ns, previous) << where;
        previous = found.time_ns;
      }
    }
  }
}

// Its plans are right and its bound holds for every plan that keeps the order of first runs.
TEST(WindowSearch, IsBracketedByBruteForce) {
  ASSERT_TRUE(has_solver()) << "this test is for builds with HiGHS";
  int64_t cases = 0, best = 0, proven = 0;
  for (uint64_t seed = 0; seed < small_graphs(); ++seed) {
    const Case made = random_case(seed);
    for (const int64_t budget : made.budgets) {
      const std::string where =
          "seed " + std::to_string(seed) + ", budget " + std::to_string(budget);
      const StateSearchResult expected =
          testing::brute_force(made.graph, budget, Freedom::given_order);
      ASSERT_TRUE(expected.complete) << where;
      Effort effort(kAmpleSeconds);
      const WindowSearchResult found =
          search_windows(made.graph, given_order(made.graph), budget, effort);
      ASSERT_FALSE(found.infeasible && expected.feasible) << where;
      if (!found.order.empty()) {
        expect_right(made.graph, found.order, budget, where);
        ASSERT_TRUE(expected.feasible) << where;
        ASSERT_GE(found.time_ns, expected.time_ns) << where;
      }
      if (!expected.feasible) continue;
      ASSERT_LE(found.least_time_ns, expected.time_ns) << where;
      if (expected.order.size() == made.graph.ops.size()) continue;
      ++cases;
      best += !found.order.empty() && found.time_ns == expected.time_ns;
      proven += found.least_time_ns == expected.time_ns;
    }
  }
  RecordProperty("recomputing", std::to_string(cases));
  RecordProperty("optimal", std::to_string(best));
  RecordProperty("bound_tight", std::to_string(proven));
  EXPECT_GT(best, cases / 2);
}

TEST(Optimal, EqualsBruteForceAndSaysSo) {
  for (uint64_t seed = 0; seed < small_graphs(); ++seed) {
    const Case made = random_case(seed);
    for (const int64_t budget : made.budgets) {
      for (const bool keep_order : {false, true}) {
        const std::string where = "seed " + std::to_string(seed) + ", budget " +
                                  std::to_string(budget) + (keep_order ? ", given order" : "");
        const StateSearchResult expected = testing::brute_force(
            made.graph, budget, keep_order ? Freedom::given_order : Freedom::any_order);
        const Plan found = plan(
            made.graph, {.budget_bytes = budget, .strategy = "optimal", .keep_order = keep_order});
        ASSERT_EQ(found.feasible, expected.feasible) << where;
        ASSERT_NE(found.note.find("proven"), std::string::npos) << where << ": " << found.note;
        if (!found.feasible) {
          EXPECT_FALSE(found.lower_bound_time_ns) << where;
          continue;
        }
        expect_right(made.graph, found.order, budget, where);
        ASSERT_EQ(found.time_ns, expected.time_ns) << where;
        ASSERT_EQ(found.lower_bound_time_ns, expected.time_ns) << where;
        if (found.order == given_order(made.graph)) continue;  // found without a search
        // The same search twice; runs may have moved since, to be packed better.
        ASSERT_TRUE(std::ranges::is_permutation(found.order, expected.order)) << where;
      }
    }
  }
}

// Beyond exhaustive search: right, no slower than the others, not below its own bound.
TEST(Optimal, IsBestOnLargerGraphs) {
  testing::RandomGraphOptions shape;
  shape.forward_ops = 40;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator, shape);
    const int64_t budget = (floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 2;
    const Plan others = plan(graph, {.budget_bytes = budget, .strategy = "mutwo"});
    for (const bool keep_order : {false, true}) {
      const Plan found = plan(graph, {.budget_bytes = budget,
                                      .strategy = "optimal",
                                      .time_limit_seconds = 1,
                                      .keep_order = keep_order});
      ASSERT_TRUE(found.feasible);
      expect_right(graph, found.order, budget, "seed " + std::to_string(seed));
      EXPECT_TRUE(!others.feasible || found.time_ns <= others.time_ns);
      ASSERT_TRUE(found.lower_bound_time_ns);
      EXPECT_LE(*found.lower_bound_time_ns, found.time_ns);
      EXPECT_FALSE(found.note.empty());
    }
  }
}

// 8 + 8 + 8 kept at the turn would be 4 + 24; with 20, f1's result must be made again: 3 ns more.
TEST(Optimal, RecomputesTheCheapOne) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=3 reads=x creates=a:8
op f2 forward kind=k time_ns=50 reads=a creates=b:8
op f3 forward kind=k time_ns=5 reads=b creates=c:8
op b3 backward kind=k time_ns=5 reads=c,b creates=g:0
op b1 backward kind=k time_ns=5 reads=g,a creates=h:0
output h
)");
  EXPECT_EQ(keep_all_baseline(graph).peak_bytes, 28);
  EXPECT_EQ(lower_bound_peak_bytes(graph), 20);
  const Plan found = plan(graph, {.budget_bytes = 20, .strategy = "optimal"});
  EXPECT_TRUE(found.feasible);
  EXPECT_EQ(found.time_ns, 68 + 3);
  EXPECT_EQ(found.lower_bound_time_ns, 71);
  EXPECT_EQ(plan(graph, {.budget_bytes = 19, .strategy = "optimal"}).note,
            "no plan fits in any order: proven");
  Effort effort(kAmpleSeconds);
  EXPECT_EQ(lower_bound_time_ns(graph, 20, effort), has_solver() ? 71 : 68);
  EXPECT_FALSE(lower_bound_time_ns(graph, 19, effort));
}

TEST(Bound, IsBelowEveryPlanOfSmallGraphs) {
  std::vector<double> gaps;
  int64_t proven_infeasible = 0, infeasible = 0, tight = 0;
  for (uint64_t seed = 0; seed < small_graphs(); ++seed) {
    const Case made = random_case(seed);
    const int64_t once_ns = keep_all_baseline(made.graph).time_ns;
    for (const int64_t budget : made.budgets) {
      const std::string where =
          "seed " + std::to_string(seed) + ", budget " + std::to_string(budget);
      const StateSearchResult best = testing::brute_force(made.graph, budget);
      ASSERT_TRUE(best.complete) << where;
      Effort effort(kAmpleSeconds);
      const auto bound = lower_bound_time_ns(made.graph, budget, effort);
      infeasible += !best.feasible;
      if (!bound) {
        ASSERT_FALSE(best.feasible) << where;
        ++proven_infeasible;
        continue;
      }
      ASSERT_GE(*bound, once_ns);
      if (!best.feasible) continue;
      ASSERT_LE(*bound, best.time_ns) << where;
      if (best.time_ns == once_ns) continue;
      tight += *bound == best.time_ns;
      gaps.push_back(100.0 * static_cast<double>(best.time_ns - *bound) /
                     static_cast<double>(once_ns));
    }
  }
  RecordProperty("median_gap_percent", std::to_string(median(gaps)));
  RecordProperty("recomputing", std::to_string(gaps.size()));
  RecordProperty("tight", std::to_string(tight));
  RecordProperty("infeasible", std::to_string(infeasible));
  RecordProperty("proven_infeasible", std::to_string(proven_infeasible));
}

TEST(Bound, PeakIsBelowTheFloorOfSmallGraphs) {
  std::vector<double> gaps;
  for (uint64_t seed = 0; seed < small_graphs(); ++seed) {
    const Case made = random_case(seed);
    const int64_t bound = lower_bound_peak_bytes(made.graph);
    const int64_t most = keep_all_baseline(made.graph).peak_bytes;
    // From far below the bound, so that a wrong one would be noticed.
    const auto least = testing::brute_force_floor(made.graph, bound / 2, most, Freedom::any_order);
    ASSERT_TRUE(least) << "seed " << seed;
    ASSERT_LE(bound, *least) << "seed " << seed;
    gaps.push_back(100.0 * static_cast<double>(*least - bound) / static_cast<double>(*least));
  }
  RecordProperty("median_gap_percent", std::to_string(median(gaps)));
}

}  // namespace
}  // namespace remat
