// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/problem.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/testing/random_packing.h"

namespace remat {
namespace problem_test {

// The picture in problem.h: a is 2, 3, then 1 high, b follows on top of its last part.
PackingProblem picture() {
  PackingProblem problem;
  problem.add(std::vector<Part>{{0, 1, 2}, {2, 2, 3}, {3, 4, 1}});
  problem.add({3, 5, 1});
  return problem;
}

TEST(PackingProblem, KnowsItsItems) {
  const PackingProblem problem = picture();
  EXPECT_EQ(problem.item_count(), 2);
  EXPECT_EQ(problem.tick_count(), 6);
  EXPECT_EQ(problem.first_tick(0), 0);
  EXPECT_EQ(problem.last_tick(0), 4);
  EXPECT_EQ(problem.size(0), 3);
  EXPECT_EQ(problem.area(0), 2 * 2 + 1 * 3 + 2 * 1);
  EXPECT_EQ(problem.area(1), 3 * 1);
  EXPECT_FALSE(problem.stays(0));
  EXPECT_TRUE(problem.stays(1));
}

TEST(PackingProblem, LoadIsTheSumOfTheSizesAtEachTick) {
  const PackingProblem problem = picture();
  EXPECT_EQ(problem.load(), (std::vector<int64_t>{2, 2, 3, 2, 2, 1}));
  EXPECT_EQ(problem.largest_load(), 3);
  EXPECT_EQ(problem.fullest_tick(), 2);
  EXPECT_EQ(PackingProblem().largest_load(), 0);
  EXPECT_EQ(PackingProblem().fullest_tick(), 0);
}

TEST(PackingProblem, TheHeightIsTheTopOfWhatIsPlaced) {
  EXPECT_EQ(height_of(picture(), {0, 1}), 3);
  EXPECT_EQ(height_of(picture(), {0, 7}), 8);
  EXPECT_EQ(height_of(picture(), {kNotPlaced, 1}), 2);
}

// At ticks 1 to 3 nothing starts, at 0 to 2 nothing ends: one tick is enough for the two items.
TEST(PackingProblem, IdleTicksAreLeftOut) {
  PackingProblem problem;
  problem.add({0, 3, 5});
  problem.add({0, 4, 7});
  const PackingProblem fewer = without_idle_ticks(problem);
  EXPECT_EQ(fewer.tick_count(), 1);
  EXPECT_EQ(fewer.load(), std::vector<int64_t>{12});
}

TEST(PackingProblem, WithoutIdleTicksItemsOverlapAsBefore) {
  int32_t left_out = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 generator(seed);
    const PackingProblem problem = testing::random_packing(generator, 12, 40, 9);
    const PackingProblem fewer = without_idle_ticks(problem);
    left_out += problem.tick_count() - fewer.tick_count();
    EXPECT_EQ(fewer.largest_load(), problem.largest_load()) << "seed " << seed;
    for (size_t a = 0; a < problem.item_count(); ++a) {
      for (size_t b = a + 1; b < problem.item_count(); ++b) {
        // At the same offset two items are apart only if they never meet.
        const auto apart = [&](const PackingProblem& in) {
          PackingProblem two;
          two.add(in.parts(a));
          two.add(in.parts(b));
          return testing::partial_packing_fault(two, {0, 0}, 9).empty();
        };
        EXPECT_EQ(apart(fewer), apart(problem)) << "seed " << seed << ", items " << a << ", " << b;
      }
    }
  }
  EXPECT_GT(left_out, 0);
}

}  // namespace problem_test
}  // namespace remat
