// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace remat::testing {

// Bytes of tensors alive, counted by an allocator that stands in for LibTorch's from the first call
// of any of these functions on. Tensors made before are not counted.
int64_t live_bytes();
int64_t peak_bytes();
void reset_peak();

}  // namespace remat::testing
