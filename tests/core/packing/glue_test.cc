// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/glue.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/testing/check_placement.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace glue_test {

using detail::Glue;
using detail::GluedProblem;

// The picture in glue.h: a ends where b and c, together as large, start.
TEST(PackingGlue, WhatFollowsAtFullTicksBecomesOne) {
  PackingProblem problem;
  problem.add({0, 1, 5});
  problem.add({2, 3, 3});
  problem.add({2, 3, 2});
  const GluedProblem glued(problem, 5, Glue::matches);
  EXPECT_EQ(glued.problem().item_count(), 1);
  const std::vector<int64_t> offset = glued.original_offset({0});
  EXPECT_EQ(testing::partial_packing_fault(problem, offset, 5), "");
}

// Two items with the same life are one item only for the bolder way.
TEST(PackingGlue, TwinsAreStackedOnlyWhereAsked) {
  PackingProblem problem;
  problem.add({0, 3, 5});
  problem.add({0, 3, 3});
  problem.add({1, 2, 1});
  EXPECT_EQ(GluedProblem(problem, 9, Glue::matches).problem().item_count(), 3);
  EXPECT_EQ(GluedProblem(problem, 9, Glue::twins).problem().item_count(), 2);
}

// Glue is a guess, but a packing of what was glued is always one of the items, as high.
TEST(PackingGlue, PackingsOfTheGluedProblemArePackings) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 generator(seed);
    PackingProblem problem = testing::random_packing(generator, 30, 15, 20'000);
    // Items that end and start where every tick is full, so that there is something to glue.
    problem.add({15, 16, 20'000 * 30});
    problem.add({17, 18, 12'000 * 30});
    problem.add({17, 18, 8'000 * 30});
    for (const Glue how : {Glue::matches, Glue::twins}) {
      const GluedProblem glued(problem, problem.largest_load(), how);
      EXPECT_LT(glued.problem().item_count(), problem.item_count());
      Effort none = testing::search_nodes(0);
      const Packing packing = pack(glued.problem(), none);
      ASSERT_EQ(testing::packing_fault(glued.problem(), packing), "") << "seed " << seed;
      ASSERT_EQ(testing::partial_packing_fault(problem, glued.original_offset(packing.offset),
                                               packing.height),
                "")
          << "seed " << seed;
    }
  }
}

}  // namespace glue_test
}  // namespace remat
