// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/occupancy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/testing/random_graph.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace occupancy_test {

using detail::Occupancy;

// At ticks 0..3 the offsets 2..4 are taken, at 2..5 also 6..7.
TEST(Occupancy, LooksFromBelowAndFromAbove) {
  Occupancy occupancy(6);
  occupancy.insert(std::vector<Part>{{0, 3, 3}}, 2);
  occupancy.insert(std::vector<Part>{{2, 5, 2}}, 6);
  const std::vector<Part> two{{0, 5, 2}}, three{{0, 5, 3}}, late{{4, 5, 3}};
  EXPECT_EQ(occupancy.lowest_fit(two, 100), 0);
  EXPECT_EQ(occupancy.lowest_fit(three, 100), 8);
  EXPECT_EQ(occupancy.lowest_fit(late, 100), 0);
  EXPECT_EQ(occupancy.highest_fit(two, 100), 100);
  EXPECT_EQ(occupancy.highest_fit(two, 8), 8);
  EXPECT_EQ(occupancy.highest_fit(two, 7), 0);  // 5..6 is taken at tick 2, 1..2 at tick 0
  EXPECT_LT(occupancy.highest_fit(three, 7), 0);
  EXPECT_EQ(occupancy.highest_fit(late, 7), 3);
}

bool apart(const PackingProblem& problem, size_t a, int64_t offset_a, size_t b, int64_t offset_b) {
  for (const Part& p : problem.parts(a)) {
    for (const Part& q : problem.parts(b)) {
      if (p.first > q.last || q.first > p.last) continue;
      if (offset_a < offset_b + q.size && offset_b < offset_a + p.size) return false;
    }
  }
  return true;
}

TEST(Occupancy, AgreesWithLookingAtEveryOffset) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 generator(seed);
    const PackingProblem problem = testing::random_packing(generator, 25, 12, 6);
    const int64_t limit = 40;
    Occupancy occupancy(problem.tick_count());
    std::vector<int64_t> offset;
    for (size_t item = 0; item < problem.item_count(); ++item) {
      std::vector<int64_t> free;
      for (int64_t o = 0; o <= limit; ++o) {
        bool fits = true;
        for (size_t other = 0; other < item; ++other) {
          fits = fits && (offset[other] < 0 || apart(problem, item, o, other, offset[other]));
        }
        if (fits) free.push_back(o);
      }
      const int64_t lowest = occupancy.lowest_fit(problem.parts(item), limit);
      const int64_t highest = occupancy.highest_fit(problem.parts(item), limit);
      if (free.empty()) {
        ASSERT_GT(lowest, limit) << "seed " << seed;
        ASSERT_LT(highest, 0) << "seed " << seed;
        offset.push_back(-1);
        continue;
      }
      ASSERT_EQ(lowest, free.front()) << "seed " << seed;
      ASSERT_EQ(highest, free.back()) << "seed " << seed;
      offset.push_back(item % 2 == 0 ? lowest : highest);
      occupancy.insert(problem.parts(item), offset.back());
    }
  }
}

}  // namespace occupancy_test
}  // namespace remat
