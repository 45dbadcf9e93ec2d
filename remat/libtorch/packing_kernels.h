// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

namespace remat::detail {

// How the bytes of a storage are packed into fewer. A rule that relies on values checks them while
// it packs.
enum class PackRule : uint8_t {
  two_values,     // one of two bit patterns (dropout masks: 0 and 1 / (1 - p)): a bit each
  bools,          // bytes that are 0 or 1: a bit each
  above,          // of floats only whether they are above `low`: a bit each; cannot be unpacked
  between,        // only whether they lie between `low` and `high`: likewise
  narrow,         // integers from `narrow_base` on that fit into `narrow_bytes`
  pool_offsets,   // indices of a max pooling, each inside of its window: a byte each
  from_bfloat16,  // float32 values that bfloat16 can hold: two bytes each
  from_half,      // float32 values that float16 can hold: two bytes each
};

// The windows of a pooling along one dimension. That of output o begins at input
// o * stride - padding, or at o * in / out where the pooling is adaptive, and holds `kernel` inputs
// (the most that any window has), each `dilation` after the one before.
struct PoolDimension {
  int64_t in = 1;
  int64_t out = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  bool operator==(const PoolDimension&) const = default;
};

struct PoolWindows {
  // Depth, height, width; those that a pooling lacks stay as they are.
  std::array<PoolDimension, 3> dimensions = {};
  // The number of channels where they lie next to each other in memory, else 1.
  int64_t channels_last = 1;
  bool adaptive = false;
  bool operator==(const PoolWindows&) const = default;
};

struct PackFormat {
  PackRule rule = PackRule::two_values;
  c10::ScalarType dtype = c10::ScalarType::Byte;  // of the unpacked elements
  int64_t elements = 0;
  // above: the bit is !(x <= low), or x > low if NaN is not above. between: low < x < high; NaN is
  // refused, as ATen's hardtanh_backward treats it in one way inside of its vectors and in another
  // at their end.
  double low = 0;
  double high = 0;
  bool nan_is_above = true;  // as for threshold_backward; for leaky_relu_backward it is not
  int64_t narrow_base = 0;   // the least value that can be packed
  int64_t narrow_bytes = 1;  // 1, 2 or 4, and less than an element has
  PoolWindows pool = {};
  bool operator==(const PackFormat&) const = default;
};

// Whether the rule knows the type of the elements and, for poolings, such windows. All below
// expects that it does.
bool can_pack(const PackFormat& format);
bool can_unpack(PackRule rule);

// How many bytes pack() writes, a number that depends on no value.
int64_t packed_bytes(const PackFormat& format);

// Packs what lies at `from` into packed_bytes(format) bytes at `to`; the two may not overlap and
// need no alignment. Runs on ATen's threads. False: a value is not as the rule expects, and `to` is
// worthless.
[[nodiscard]] bool pack(const PackFormat& format, const void* from, void* to);

// Writes the elements back, bit for bit, from what pack() made of them. Only where
// can_unpack(rule).
void unpack(const PackFormat& format, const void* from, void* to);

}  // namespace remat::detail
