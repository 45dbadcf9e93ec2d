// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace remat::testing {

// How many random cases a property is tried on. REMAT_PROPERTY_PERCENT, where it is set to a positive
// number, takes that share of every count: a nightly run can be longer and a sanitizer run shorter.
// Never less than ten, so that a share of the cases can still be asked for; where one case takes seconds under the
// sanitizers, `least`.
inline uint64_t property_graphs(uint64_t by_default, uint64_t least = 10) {
  const char* text = std::getenv("REMAT_PROPERTY_PERCENT");
  const long long percent = text == nullptr ? 0 : std::atoll(text);
  if (percent <= 0) return by_default;
  return std::max<uint64_t>(least, by_default * static_cast<uint64_t>(percent) / 100);
}

}  // namespace remat::testing
