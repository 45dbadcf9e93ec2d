// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/stages.h"

#include <gtest/gtest.h>

#include <random>

#include "remat/core/packing/packing.h"
#include "tests/testing/check_placement.h"
#include "tests/testing/cut_rectangle.h"
#include "tests/testing/random_packing.h"

namespace remat {
namespace stages_test {

using testing::packing_fault;

Packing pack_with(const PackingProblem& problem, int64_t nodes, const PackingStages& stages) {
  Effort effort = testing::search_nodes(nodes);
  return pack(problem, effort, {.stages = stages});
}

PackingStages choice_of_stages(unsigned bits) {
  const auto on = [&](int bit) { return (bits >> bit & 1) != 0; };
  return {on(0), on(1), on(2), on(3), on(4)};
}

// Whatever is switched off, the rest makes a packing, and more stages never prove less than the load.
TEST(PackingStages, AnyChoiceOfThemPacks) {
  std::mt19937_64 generator(3);
  const PackingProblem random = testing::random_packing(generator, 60, 40, 100);
  const PackingProblem cut = cut_rectangle(testing::Cut::pinwheel, 60, 1);
  for (unsigned bits = 0; bits < 32; ++bits) {
    for (const PackingProblem* problem : {&random, &cut}) {
      const Packing packing = pack_with(*problem, 2'000, choice_of_stages(bits));
      EXPECT_EQ(packing_fault(*problem, packing), "") << "stages " << bits;
      EXPECT_GE(packing.lower_bound, problem->largest_load()) << "stages " << bits;
    }
  }
}

// Greedy leaves waste here, and each of these stages can remove some of it alone.
TEST(PackingStages, ImproveOnGreedy) {
  const PackingProblem problem = cut_rectangle(testing::Cut::pinwheel, 400, 1);
  constexpr int64_t kNodes = 500'000;
  const int64_t greedy = pack_with(problem, kNodes, choice_of_stages(0)).height;
  for (const auto stage : {&PackingStages::raise, &PackingStages::lower}) {
    PackingStages alone = choice_of_stages(0);
    alone.*stage = true;
    const Packing packing = pack_with(problem, kNodes, alone);
    EXPECT_EQ(packing_fault(problem, packing), "");
    EXPECT_LT(packing.height, greedy);
  }
}

}  // namespace stages_test
}  // namespace remat
