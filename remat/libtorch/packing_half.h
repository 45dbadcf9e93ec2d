// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace remat::detail {

// float16 <-> float32, for arrays that need no alignment, with the machine's own instructions where
// vectors() says that it has them. float_to_half rounds to the nearest, and returns whether the
// same bits would come back.
void half_to_float(const void* from, void* to, int64_t count);
bool float_to_half(const void* from, void* to, int64_t count);

// Multiplies a block of kBlock float16 elements, as float32, by `set` or `clear`, as its bit is. If
// one is NaN or infinite, it writes nothing and returns false. `to` may be `from`.
bool scale_half_block(uint64_t bits, float clear, float set, const void* from, void* to);

}  // namespace remat::detail
