// SPDX-License-Identifier: Apache-2.0
#include "remat/core/error.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace remat {
namespace error_test {

TEST(Error, ConcatJoinsWhatAStreamCanPrint) {
  EXPECT_EQ(detail::concat("line ", 7, ": ", std::string("x"), '=', std::string_view("y"), 0.5),
            "line 7: x=y0.5");
}

TEST(Error, CarriesItsMessageAsARuntimeError) {
  try {
    throw Error("[plan] budget_bytes is -1");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "[plan] budget_bytes is -1");
  }
}

// Whoever catches Error must not catch our own mistakes with it.
TEST(Error, AFailedAssertionIsALogicErrorThatNamesTheConditionAndThePlace) {
  try {
    detail::assert_failed("a < b", "graph.cc", 12);
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "remat: internal error: a < b at graph.cc:12");
  }
}

TEST(Error, AssertionsAreThereInCheckedBuildsOnly) {
#if !defined(NDEBUG) || defined(REMAT_CHECKED)
  EXPECT_NO_THROW(REMAT_ASSERT(1 + 1 == 2));
  EXPECT_THROW(REMAT_ASSERT(1 + 1 == 3), std::logic_error);
#else
  EXPECT_NO_THROW(REMAT_ASSERT(1 + 1 == 3));
#endif
}

}  // namespace error_test
}  // namespace remat
