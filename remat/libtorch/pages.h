// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace remat::detail {

// The unit in which memory is mapped, protected and given back.
inline constexpr int64_t kPageBytes = 4096;

inline int64_t whole_pages(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace remat::detail
