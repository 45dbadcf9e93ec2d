// SPDX-License-Identifier: Apache-2.0
#include "remat/core/needed_copies.h"

#include <gtest/gtest.h>

namespace remat {
namespace needed_copies_test {

constexpr size_t kFirst = 0, kSecond = 1;  // versions of a storage, by number

TEST(NeededCopies, AnyNumberOfReadersShareOne) {
  NeededCopies copies(2);
  EXPECT_TRUE(copies.read(kFirst));
  EXPECT_FALSE(copies.read(kFirst));
  EXPECT_EQ(copies.count(kFirst), 1);
  EXPECT_TRUE(copies.make(kFirst));
  EXPECT_FALSE(copies.needed(kFirst));
}

TEST(NeededCopies, WhatIsMadeTwiceInARowWasNeededOnce) {
  NeededCopies copies(2);
  copies.read(kFirst);
  EXPECT_TRUE(copies.make(kFirst));
  EXPECT_FALSE(copies.make(kFirst));
  EXPECT_EQ(copies.count(kFirst), 0);
}

// The update uses up its copy. A reader of the earlier version behind it needs another one.
TEST(NeededCopies, AnUpdateNeedsACopyOfItsOwn) {
  NeededCopies copies(2);
  copies.read(kFirst);
  copies.read(kSecond);
  EXPECT_TRUE(copies.change(kFirst, kSecond));
  EXPECT_EQ(copies.count(kFirst), 2);
  EXPECT_EQ(copies.count(kSecond), 0);
  EXPECT_FALSE(copies.change(kFirst, kSecond)) << "nothing needs the result";
  EXPECT_EQ(copies.count(kFirst), 3);
}

TEST(NeededCopies, StartAnew) {
  NeededCopies copies(2);
  copies.read(kSecond);
  copies.reset();
  EXPECT_FALSE(copies.needed(kSecond));
}

}  // namespace needed_copies_test
}  // namespace remat
