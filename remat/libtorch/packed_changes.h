// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/libtorch/packing_kernels.h"

// The two things that readers of packed values do with the elements of another tensor, in vectors.
namespace remat::detail {

// Elements, one for each packed bit.
struct PackedPair {
  const PackFormat& format;
  const void* words;
  const void* in;
  void* out;  // may be `in`
  int64_t element_bytes() const { return static_cast<int64_t>(c10::elementSize(format.dtype)); }
};

// What an element is multiplied by if its bit is clear and if it is set: numbers of the type in
// which ATen multiplies, double for double and float for all others.
struct Factors {
  double clear = 0;
  double set = 0;
};

// Write the elements of [begin, end): those whose bit is set, with 0 for the others; all of them,
// times finite factors. They return how far they came: to `end`, or to a block of kBlock elements,
// counted from `begin`, with a NaN or an infinity of which they do not know what ATen makes.
int64_t select_elements(const PackedPair& pair, int64_t begin, int64_t end);
int64_t scale_elements(const PackedPair& pair, const Factors& factors, int64_t begin, int64_t end);

}  // namespace remat::detail
