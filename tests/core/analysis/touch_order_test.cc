// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/touch_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace remat {
namespace touch_order_test {

std::vector<int> behind(TouchOrder<int>& touches, size_t thing, int toucher, bool changes) {
  std::vector<int> found;
  touches.touch(thing, toucher, changes, [&](int earlier) { found.push_back(earlier); });
  return found;
}

// The table in touch_order.h.
TEST(TouchOrder, ReadsAreBehindTheLastChangeAndChangesBehindAllSince) {
  TouchOrder<int> touches(1);
  EXPECT_EQ(behind(touches, 0, 1, true), (std::vector<int>{}));
  EXPECT_EQ(behind(touches, 0, 2, false), (std::vector<int>{1}));
  EXPECT_EQ(behind(touches, 0, 3, false), (std::vector<int>{1}));
  EXPECT_EQ(behind(touches, 0, 4, true), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(behind(touches, 0, 5, false), (std::vector<int>{4}));
}

TEST(TouchOrder, ReadsBeforeAnyChangeAreFree) {
  TouchOrder<int> touches(1);
  EXPECT_EQ(behind(touches, 0, 1, false), (std::vector<int>{}));
  EXPECT_EQ(behind(touches, 0, 2, false), (std::vector<int>{}));
  EXPECT_EQ(behind(touches, 0, 3, true), (std::vector<int>{1, 2}));
}

TEST(TouchOrder, NobodyIsBehindItself) {
  TouchOrder<int> touches(1);
  EXPECT_EQ(behind(touches, 0, 1, false), (std::vector<int>{}));
  EXPECT_EQ(behind(touches, 0, 1, true), (std::vector<int>{}));
  EXPECT_EQ(behind(touches, 0, 1, false), (std::vector<int>{}));
  EXPECT_EQ(behind(touches, 0, 2, true), (std::vector<int>{1, 1}));
}

TEST(TouchOrder, ThingsAreApart) {
  TouchOrder<int> touches(2);
  EXPECT_EQ(behind(touches, 0, 1, true), (std::vector<int>{}));
  EXPECT_EQ(behind(touches, 1, 2, true), (std::vector<int>{}));
  EXPECT_EQ(behind(touches, 1, 3, false), (std::vector<int>{2}));
}

}  // namespace touch_order_test
}  // namespace remat
