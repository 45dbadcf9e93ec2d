// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/order/context.h"

namespace remat {

// Other orders of the same runs, which take equally long.

// The first temperature of reorder(), in parts of the overflow. Higher heat escapes deeper local
// minima; this much is best where there is far to go.
inline constexpr double kMildHeat = 0.02;

// Simulated annealing on the overflow, for at most `work`: the temperature falls from `heat` to
// nothing. Keeps the order of the least overflow. Does nothing where the order must be kept or fits.
void reorder(SearchContext& context, FoundOrder& found, int64_t work, Effort& effort,
             double heat = kMildHeat);

// Tries so many shifts and keeps those after which no more lies above `line_bytes`, summed over
// positions. The peak does not rise.
void flatten(SearchContext& context, FoundOrder& found, int64_t line_bytes, int64_t tries,
             Effort& effort);

}  // namespace remat
