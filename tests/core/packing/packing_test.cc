// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/testing/check_placement.h"
#include "tests/testing/cut_rectangle.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace packing_test {

using testing::draw;
using testing::packing_fault;

Packing pack_with(const PackingProblem& problem, int64_t nodes, const PackingOptions& options = {}) {
  Effort effort = testing::search_nodes(nodes);
  return pack(problem, effort, options);
}

TEST(Packing, NothingNeedsNothing) {
  const Packing packing = pack_with(PackingProblem(), 0);
  EXPECT_EQ(packing.height, 0);
  EXPECT_TRUE(packing.offset.empty());
}

TEST(Packing, ItemsApartInTimeShareTheBottom) {
  PackingProblem problem;
  problem.add({0, 3, 5});
  problem.add({4, 9, 7});
  const Packing packing = pack_with(problem, 100'000);
  EXPECT_EQ(packing.offset, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(packing.height, 7);
}

// The picture in problem.h: a is 2, 3, then 1 high; b (1 high) starts when a has shrunk. The load
// is 3 at tick 2 and 2 afterwards, so 3 is enough.
TEST(Packing, PartsOfAnItemLeaveRoomWhenTheyShrink) {
  PackingProblem problem;
  problem.add(std::vector<Part>{{0, 1, 2}, {2, 2, 3}, {3, 4, 1}});
  problem.add({3, 5, 1});
  const Packing packing = pack_with(problem, 100'000);
  EXPECT_EQ(packing_fault(problem, packing), "");
  EXPECT_EQ(packing.height, 3);
}

// The least height by brute force: every packing whose items are pushed down as far as they go
// comes from laying the items in some order, each on what is below it.
int64_t least_height(const PackingProblem& problem) {
  std::vector<size_t> order(problem.item_count());
  std::iota(order.begin(), order.end(), 0);
  int64_t least = std::numeric_limits<int64_t>::max();
  do {
    std::vector<int64_t> top(static_cast<size_t>(problem.tick_count()), 0);
    for (const size_t item : order) {
      int64_t offset = 0;
      for (const Part& part : problem.parts(item)) {
        for (int32_t t = part.first; t <= part.last; ++t) {
          offset = std::max(offset, top[static_cast<size_t>(t)]);
        }
      }
      for (const Part& part : problem.parts(item)) {
        for (int32_t t = part.first; t <= part.last; ++t) {
          top[static_cast<size_t>(t)] = offset + part.size;
        }
      }
    }
    least = std::min(least, *std::max_element(top.begin(), top.end()));
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

// Load by tick: 3, 3+3, 3+3, 3+1+1, 1+1+2+2, 1+2+3, 3+3: at most 6. But 6 cannot be had, and
// pack proves it.
TEST(Packing, TheLoadIsNotAlwaysEnough) {
  PackingProblem problem;
  problem.add({0, 2, 3});
  problem.add({1, 3, 3});
  problem.add({3, 5, 1});
  problem.add({3, 4, 1});
  problem.add({4, 4, 2});
  problem.add({4, 5, 2});
  problem.add({5, 6, 3});
  problem.add({6, 6, 3});
  const Packing packing = pack_with(problem, 100'000);
  EXPECT_EQ(packing_fault(problem, packing), "");
  EXPECT_EQ(problem.largest_load(), 6);
  EXPECT_EQ(least_height(problem), 7);
  EXPECT_EQ(packing.height, 7);
  EXPECT_EQ(packing.lower_bound, 7);
}

TEST(Packing, OptimalMeansOptimal) {
  int wasteful = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    std::mt19937_64 generator(seed);
    const PackingProblem problem = testing::random_packing(generator, 7, 6, 8);
    const Packing packing = pack_with(problem, 200'000);
    ASSERT_EQ(packing_fault(problem, packing), "") << "seed " << seed;
    const int64_t least = least_height(problem);
    ASSERT_LE(packing.lower_bound, least) << "seed " << seed;
    if (packing.height == packing.lower_bound) {
      ASSERT_EQ(packing.height, least) << "seed " << seed;
    }
    wasteful += least > problem.largest_load() ? 1 : 0;
  }
  EXPECT_GT(wasteful, 5) << "the problems are too easy to say anything";
}

TEST(Packing, HoldsOnRandomProblems) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 generator(seed);
    const int items = static_cast<int>(draw(generator, 1, 120));
    const PackingProblem problem = testing::random_packing(generator, items, 60, 1000);
    EXPECT_EQ(packing_fault(problem, pack_with(problem, 3000)), "") << "seed " << seed;
  }
}

TEST(Packing, FindsTheGuillotinesPackingWithoutWaste) {
  for (const int blocks : {20, 100, 200, 300, 400}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const PackingProblem problem = cut_rectangle(testing::Cut::guillotine, blocks, seed);
      const Packing packing = pack_with(problem, 2'000'000);
      EXPECT_EQ(packing_fault(problem, packing), "") << blocks << " blocks, seed " << seed;
      EXPECT_EQ(packing.height, testing::kCutHeight) << blocks << " blocks, seed " << seed;
    }
  }
}

TEST(Packing, FindsThePinwheelsPackingWithoutWaste) {
  for (const int blocks : {20, 50, 100}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const PackingProblem problem = cut_rectangle(testing::Cut::pinwheel, blocks, seed);
      const Packing packing = pack_with(problem, 2'000'000);
      EXPECT_EQ(packing_fault(problem, packing), "") << blocks << " blocks, seed " << seed;
      EXPECT_EQ(packing.height, testing::kCutHeight) << blocks << " blocks, seed " << seed;
    }
  }
}

TEST(Packing, WithoutSearchStillPacks) {
  const PackingProblem problem = cut_rectangle(testing::Cut::pinwheel, 200, 1);
  const Packing packing = pack_with(problem, 0);
  EXPECT_EQ(packing_fault(problem, packing), "");
  EXPECT_EQ(packing.lower_bound, testing::kCutHeight);
}

TEST(Packing, LowEnoughNeedNotBeLower) {
  const PackingProblem problem = cut_rectangle(testing::Cut::pinwheel, 400, 3);
  const int64_t enough_height = testing::kCutHeight * 13 / 10;
  Effort ample = testing::search_nodes(100'000), less = testing::search_nodes(100'000);
  pack(problem, ample);
  const Packing enough = pack(problem, less, {.enough_height = enough_height});
  EXPECT_EQ(packing_fault(problem, enough), "");
  EXPECT_LE(enough.height, enough_height);
  EXPECT_EQ(enough.lower_bound, testing::kCutHeight);
  EXPECT_LT(less.spent(), ample.spent());
}

// All stages together spend what they are given, but for the last step of one.
TEST(Packing, EndsWithTheEffort) {
  const PackingProblem problem = cut_rectangle(testing::Cut::pinwheel, 400, 3);
  for (const int64_t nodes : {1'000, 10'000, 100'000}) {
    Effort effort = testing::search_nodes(nodes);
    pack(problem, effort);
    EXPECT_GE(effort.spent(), testing::search_nodes(nodes).left());
    EXPECT_LT(effort.spent(), testing::search_nodes(nodes + 10'000).left());
  }
}

TEST(Packing, SameProblemSamePacking) {
  for (const int64_t limit : {int64_t{100}, int64_t{10'000}, int64_t{100'000}}) {
    const PackingProblem problem = cut_rectangle(testing::Cut::pinwheel, 400, 3);
    const Packing once = pack_with(problem, limit);
    const Packing again = pack_with(problem, limit);
    EXPECT_EQ(once.offset, again.offset);
  }
}

}  // namespace packing_test
}  // namespace remat
