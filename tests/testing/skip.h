// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

// Ends the test that cannot run here, with the reason; in CI that is a failure.
#define REMAT_SKIP(reason)                     \
  if (std::getenv("CI") != nullptr) {          \
    FAIL() << "in CI it must run: " << reason; \
  }                                            \
  GTEST_SKIP() << reason
