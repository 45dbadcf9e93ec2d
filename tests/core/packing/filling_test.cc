// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/filling.h"

#include <gtest/gtest.h>

#include <vector>

namespace remat {
namespace filling_test {

using detail::Filling;
using Outlook = Filling::Outlook;

// Two ticks, height 4. a (3) at tick 0, b (1) at both, c (3) at tick 1: no slack anywhere.
PackingProblem full() {
  PackingProblem problem;
  problem.add({0, 0, 3});
  problem.add({0, 1, 1});
  problem.add({1, 1, 3});
  return problem;
}

TEST(Filling, OffersWhatCanBePlacedOnTheLevel) {
  const PackingProblem problem = full();
  Filling filling(problem, 4);
  ASSERT_EQ(filling.look(0, 2), Outlook::open);
  const Filling::Choice choice = filling.choose(0, 2);
  EXPECT_EQ(choice.tick, 0);
  EXPECT_FALSE(choice.may_skip);
  EXPECT_EQ(filling.candidates(0), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(filling.candidates(1), (std::vector<int32_t>{1, 2}));
}

TEST(Filling, PlacesItemsOnEachOtherUntilAllAreDone) {
  const PackingProblem problem = full();
  Filling filling(problem, 4);
  EXPECT_TRUE(filling.crossed_after(0));
  filling.put(1);
  EXPECT_FALSE(filling.crossed_after(0));
  ASSERT_EQ(filling.look(0, 2), Outlook::open);
  filling.put(0);
  filling.put(2);
  EXPECT_EQ(filling.look(0, 2), Outlook::done);
  EXPECT_EQ(filling.offsets(), (Offsets{1, 0, 1}));
}

// With b above a, c has to start at 4 or to leave 3 below b: both are more than 4.
TEST(Filling, LossBeyondTheSlackIsADeadEndAndSaysHowMuchIsMissing) {
  const PackingProblem problem = full();
  Filling filling(problem, 3 + 1);
  filling.put(0);
  filling.put(1);  // at 3
  EXPECT_EQ(filling.look(0, 2), Outlook::dead);
  EXPECT_GT(filling.least_height_needed(), 4);
}

TEST(Filling, EveryStepCanBeTakenBack) {
  const PackingProblem problem = full();
  Filling filling(problem, 5);  // one row to lose at each tick
  ASSERT_EQ(filling.look(0, 2), Outlook::open);
  const size_t mark = filling.mark();
  const Offsets before = filling.offsets();
  EXPECT_TRUE(filling.choose(0, 2).may_skip);
  filling.put(1);
  filling.put(2);
  filling.undo(mark);
  EXPECT_EQ(filling.offsets(), before);
  EXPECT_TRUE(filling.crossed_after(0));
  ASSERT_EQ(filling.look(0, 2), Outlook::open);
  EXPECT_EQ(filling.candidates(0), (std::vector<int32_t>{0, 1}));
}

// Refused offset 0, a must stand on b and b on a or c: at least at 1 and 3.
TEST(Filling, SkippedItemsGoToTheLowestSupport) {
  const PackingProblem problem = full();
  Filling filling(problem, 8);
  ASSERT_EQ(filling.look(0, 2), Outlook::open);
  ASSERT_TRUE(filling.skip(0));
  EXPECT_EQ(filling.offsets(), (Offsets{1, 3, 0}));
}

TEST(Filling, CountsItsWork) {
  const PackingProblem problem = full();
  Filling filling(problem, 4);
  filling.look(0, 2);
  EXPECT_GT(filling.take_looks(1), 0);
  EXPECT_EQ(filling.take_looks(1), 0);
}

}  // namespace filling_test
}  // namespace remat
