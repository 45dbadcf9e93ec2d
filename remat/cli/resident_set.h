// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace remat {

// What the system holds in memory for this process: more than tracked bytes, and the reason why
// those are tracked.

// Now, after malloc has given back what it can.
int64_t trimmed_resident_bytes();

// The most while `work` ran; none where the system does not let us forget an earlier maximum.
std::optional<int64_t> peak_resident_bytes(const std::function<void()>& work);

}  // namespace remat
