// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/packing/problem.h"

namespace remat::testing {

inline constexpr int32_t kCutTicks = 1000;
inline constexpr int64_t kCutHeight = 100'000;

enum class Cut : uint8_t {
  guillotine,  // a block is cut in two, through its whole width or height
  pinwheel,    // now and then into five instead, four around one: no straight cut parts those
};

// A packing problem that is known to have a packing without waste: the rectangle of kCutTicks by
// kCutHeight, cut until there are `blocks` blocks (a few more with pinwheels), in random order.
PackingProblem cut_rectangle(Cut cut, int blocks, uint64_t seed);

}  // namespace remat::testing
