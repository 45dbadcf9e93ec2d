// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>

namespace remat::testing {

// How many random graphs a property is tried on: REMAT_PROPERTY_GRAPHS where it is set to a
// positive number, so that a nightly run can be longer and a sanitizer run shorter than the
// default.
inline uint64_t property_graphs(uint64_t by_default) {
  const char* text = std::getenv("REMAT_PROPERTY_GRAPHS");
  const long long count = text == nullptr ? 0 : std::atoll(text);
  return count > 0 ? static_cast<uint64_t>(count) : by_default;
}

}  // namespace remat::testing
