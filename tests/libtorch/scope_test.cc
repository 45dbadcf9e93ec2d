// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/scope.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace remat {
namespace {

using detail::current_scope;

TEST(Scope, NestedNamesJoinAndLeaveInReverse) {
  EXPECT_EQ(current_scope(), "");
  {
    Scope block("layer1.0");
    EXPECT_EQ(current_scope(), "layer1.0");
    {
      Scope layer("conv2");
      EXPECT_EQ(current_scope(), "layer1.0.conv2");
    }
    {
      Scope layer("");
      EXPECT_EQ(current_scope(), "layer1.0");
    }
    EXPECT_EQ(current_scope(), "layer1.0");
  }
  EXPECT_EQ(current_scope(), "");
}

TEST(Scope, AnExceptionLeavesIt) {
  EXPECT_THROW(
      {
        Scope block("a");
        throw std::runtime_error("in the layer");
      },
      std::runtime_error);
  EXPECT_EQ(current_scope(), "");
}

TEST(Scope, BelongsToItsThread) {
  Scope block("outer");
  std::string seen = "nothing";
  std::thread([&] {
    const bool empty = current_scope().empty();
    Scope inner("inner");
    seen = (empty ? "" : "not empty: ") + current_scope();
  }).join();
  EXPECT_EQ(seen, "inner");
  EXPECT_EQ(current_scope(), "outer");
}

TEST(Scope, CharactersThatGraphTextCannotHoldAreReplaced) {
  Scope block("my layer\t\xc3\xa4\n");
  EXPECT_EQ(current_scope(), "my_layer____");
}

}  // namespace
}  // namespace remat
