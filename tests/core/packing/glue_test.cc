// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/glue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/testing/check_placement.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace {

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

// A grain of 1 in 5000 rides on the item that is there all its life, for as long as that is; the
// load of 4001 leaves it room.
TEST(PackingGlue, DustRidesOnAHost) {
  PackingProblem problem;
  problem.add({0, 9, 4000});
  problem.add({3, 4, 1});
  const GluedProblem glued(problem, 5000, Glue::dust);
  ASSERT_EQ(glued.problem().item_count(), 1);
  EXPECT_EQ(glued.problem().parts(0).front(), (Part{0, 9, 4001}));
  EXPECT_EQ(testing::partial_packing_fault(problem, glued.original_offset({0}), 5000), "");
}

// Without room where its host is there longer, dust stays dust.
TEST(PackingGlue, DustLeavesFullTicksAlone) {
  PackingProblem problem;
  problem.add({0, 9, 4000});
  problem.add({0, 0, 1000});  // tick 0 is full
  problem.add({3, 4, 1});
  const GluedProblem glued(problem, 5000, Glue::dust);
  EXPECT_EQ(glued.problem().item_count(), 3);
}

// Glue is a guess, but a packing of what was glued is always one of the items, as high.
TEST(PackingGlue, PackingsOfTheGluedProblemArePackings) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 generator(seed);
    PackingProblem problem = testing::random_packing(generator, 30, 15, 20'000);
    for (int grain = 0; grain < 30; ++grain) {
      const int32_t first = static_cast<int32_t>(testing::draw(generator, 0, 14));
      const int32_t last = static_cast<int32_t>(testing::draw(generator, first, 14));
      problem.add({first, last, testing::draw(generator, 1, 50)});
    }
    const std::vector<int64_t> load = problem.load();
    const int64_t height = *std::ranges::max_element(load);
    for (const Glue how : {Glue::matches, Glue::twins, Glue::dust}) {
      const GluedProblem glued(problem, height, how);
      if (how == Glue::dust) {
        EXPECT_LT(glued.problem().item_count(), problem.item_count());
      }
      const Packing packing =
          pack(glued.problem(), {.max_search_nodes = 0, .time_limit_seconds = 3600});
      ASSERT_EQ(testing::packing_fault(glued.problem(), packing), "") << "seed " << seed;
      ASSERT_EQ(testing::partial_packing_fault(problem, glued.original_offset(packing.offset),
                                               packing.height),
                "")
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace remat
