// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/libtorch/packing_kernels.h"

namespace remat::detail {

// What packing and unpacking so many elements takes, from rates that are measured once for each kind and number
// of threads: on values that do not fit into the cache, as those that a plan packs lie in memory by then.
int64_t expected_pack_ns(const PackFormat& format);
int64_t expected_unpack_ns(const PackFormat& format);

}  // namespace remat::detail
