// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace remat {
namespace profile_test {

// Two stretches above the budget of 10: positions 1-2 and 4.
TEST(ExcessProfile, SaysWhereAndHowMuch) {
  ExcessProfile profile;
  profile.build(std::vector<int64_t>{5, 12, 14, 9, 11, 8}, 10);
  EXPECT_EQ(profile.size(), 6u);
  EXPECT_EQ(profile.count_above(), 3u);
  EXPECT_EQ(profile.nth_above(0), 1u);
  EXPECT_EQ(profile.nth_above(1), 2u);
  EXPECT_EQ(profile.nth_above(2), 4u);
  EXPECT_EQ(profile.room_after(0), 3u);
  EXPECT_EQ(profile.room_after(2), 3u);
  EXPECT_EQ(profile.room_after(3), 5u);
  EXPECT_FALSE(profile.room_after(5));
}

TEST(ExcessProfile, RemovesNoMoreThanThereIs) {
  ExcessProfile profile;
  profile.build(std::vector<int64_t>{5, 12, 14, 9, 11, 8}, 10);
  EXPECT_DOUBLE_EQ(profile.removed(1, 3, 1), 2);    // one byte at each of two positions
  EXPECT_DOUBLE_EQ(profile.removed(1, 3, 100), 6);  // 2 + 4 are all
  EXPECT_DOUBLE_EQ(profile.removed(3, 4, 100), 0);
  EXPECT_DOUBLE_EQ(profile.removed(0, 6, 100), 7);
}

TEST(ExcessProfile, FindsTheMostOfAnyStretch) {
  std::mt19937_64 generator(1);
  std::vector<int64_t> bytes(300);
  for (int64_t& b : bytes) b = static_cast<int64_t>(generator() % 1'000);
  ExcessProfile profile;
  profile.build(bytes, 500);
  for (size_t from = 0; from < bytes.size(); from += 7) {
    for (size_t before = from + 1; before <= bytes.size(); before += 13) {
      const auto most = std::max_element(bytes.begin() + static_cast<int64_t>(from),
                                         bytes.begin() + static_cast<int64_t>(before));
      ASSERT_EQ(profile.most_resident(from, before), *most) << from << " to " << before;
    }
  }
}

}  // namespace profile_test
}  // namespace remat
