// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "remat/core/effort.h"
#include "remat/core/packing/problem.h"

namespace remat::detail {

struct FitResult {
  std::optional<Offsets> offset;  // by item, if a packing was found
  // Without one: no packing is lower than this. More than the height asked for only if the search
  // was complete.
  int64_t lower_bound = 0;
};

// Looks for a packing of at most `height`, exactly: branch and bound from the bottom up. `height`
// is at least the largest load. Ends early, with nothing proven, when the effort is exhausted. `seed`
// only breaks ties between equally good branches; 0 keeps the plain order.
FitResult fit_exactly(const PackingProblem& problem, int64_t height, Effort& effort,
                      uint64_t seed = 0);

// The same again and again until the effort is exhausted, each time longer and with another seed: a wrong
// choice at the bottom can cost all the time there is.
FitResult fit_with_restarts(const PackingProblem& problem, int64_t height, Effort& effort);

}  // namespace remat::detail
