// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/libtorch/packing_kernels.h"

// The kernels behind pack() and unpack(), one pair for each rule.
namespace remat::detail {

// What lies before the bits of two_values: the pattern of a bit that is not set and of one that is.
struct TwoValues {
  uint64_t clear = 0;
  uint64_t set = 0;
};

bool pack_two_values(const PackFormat& format, const void* from, void* to);
void unpack_two_values(const PackFormat& format, const void* from, void* to);
bool pack_bools(const PackFormat& format, const void* from, void* to);
void unpack_bools(const PackFormat& format, const void* from, void* to);
bool pack_comparison(const PackFormat& format, const void* from, void* to);  // above, between

bool pack_narrow(const PackFormat& format, const void* from, void* to);
void unpack_narrow(const PackFormat& format, const void* from, void* to);
bool pack_from_bfloat16(const PackFormat& format, const void* from, void* to);
void unpack_from_bfloat16(const PackFormat& format, const void* from, void* to);
bool pack_from_half(const PackFormat& format, const void* from, void* to);
void unpack_from_half(const PackFormat& format, const void* from, void* to);

bool can_pack_pool_offsets(const PackFormat& format);
bool pack_pool_offsets(const PackFormat& format, const void* from, void* to);
void unpack_pool_offsets(const PackFormat& format, const void* from, void* to);

}  // namespace remat::detail
