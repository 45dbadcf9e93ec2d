// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packing_kernels.h"

#include <cmath>

#include "remat/core/error.h"
#include "remat/libtorch/packing_bits.h"
#include "remat/libtorch/packing_rules.h"

namespace remat::detail {
namespace {

bool is_power_of_two_up_to(int64_t number, int64_t most) {
  return number >= 1 && number <= most && (number & (number - 1)) == 0;
}

bool is_compared(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double ||
         dtype == c10::ScalarType::BFloat16 || dtype == c10::ScalarType::Half;
}

}  // namespace

bool can_pack(const PackFormat& format) {
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(format.dtype));
  if (format.elements < 0) {
    return false;
  }
  switch (format.rule) {
    case PackRule::two_values: return is_power_of_two_up_to(element_bytes, 8);
    case PackRule::bools: return element_bytes == 1;
    case PackRule::above: return is_compared(format.dtype) && !std::isnan(format.low);
    case PackRule::between:
      return is_compared(format.dtype) && !std::isnan(format.low) && !std::isnan(format.high);
    case PackRule::narrow:
      return c10::isIntegralType(format.dtype, /*includeBool=*/false) &&
             is_power_of_two_up_to(format.narrow_bytes, element_bytes / 2);
    case PackRule::pool_offsets: return can_pack_pool_offsets(format);
    case PackRule::from_bfloat16:
    case PackRule::from_half: return format.dtype == c10::ScalarType::Float;
  }
  return false;
}

bool can_unpack(PackRule rule) { return rule != PackRule::above && rule != PackRule::between; }

int64_t packed_bytes(const PackFormat& format) {
  REMAT_ASSERT(can_pack(format));
  const int64_t word_bytes = words_of(format.elements) * static_cast<int64_t>(sizeof(uint64_t));
  switch (format.rule) {
    case PackRule::two_values: return static_cast<int64_t>(sizeof(TwoValues)) + word_bytes;
    case PackRule::narrow: return format.elements * format.narrow_bytes;
    case PackRule::pool_offsets: return format.elements;
    case PackRule::from_bfloat16:
    case PackRule::from_half: return format.elements * 2;
    default: return word_bytes;
  }
}

bool pack(const PackFormat& format, const void* from, void* to) {
  REMAT_ASSERT(can_pack(format));
  switch (format.rule) {
    case PackRule::two_values: return pack_two_values(format, from, to);
    case PackRule::bools: return pack_bools(format, from, to);
    case PackRule::above:
    case PackRule::between: return pack_comparison(format, from, to);
    case PackRule::narrow: return pack_narrow(format, from, to);
    case PackRule::pool_offsets: return pack_pool_offsets(format, from, to);
    case PackRule::from_bfloat16: return pack_from_bfloat16(format, from, to);
    case PackRule::from_half: return pack_from_half(format, from, to);
  }
  return false;
}

void unpack(const PackFormat& format, const void* from, void* to) {
  REMAT_ASSERT(can_pack(format) && can_unpack(format.rule));
  switch (format.rule) {
    case PackRule::two_values: return unpack_two_values(format, from, to);
    case PackRule::bools: return unpack_bools(format, from, to);
    case PackRule::above:
    case PackRule::between: return;
    case PackRule::narrow: return unpack_narrow(format, from, to);
    case PackRule::pool_offsets: return unpack_pool_offsets(format, from, to);
    case PackRule::from_bfloat16: return unpack_from_bfloat16(format, from, to);
    case PackRule::from_half: return unpack_from_half(format, from, to);
  }
}

}  // namespace remat::detail
