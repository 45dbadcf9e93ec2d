// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/libtorch/packing_kernels.h"

// ATen's ops on a tensor that is packed, without unpacking it: the same bits, NaN and infinities
// included, as the op gives for the tensor that was packed, for contiguous tensors of one shape and
// type (float32, float64, bfloat16, float16). The other argument and `out` have format.elements
// elements; they may be the same memory.
namespace remat::detail {

// Of `above`, NaN being above: threshold_backward(grad, packed, format.low).
void packed_threshold_backward(const PackFormat& format, const void* packed, const void* grad,
                               void* out);

// Of `between`: hardtanh_backward(grad, packed, format.low, format.high).
void packed_hardtanh_backward(const PackFormat& format, const void* packed, const void* grad,
                              void* out);

// Of `above` with low = 0, NaN not being above: leaky_relu_backward(grad, packed, slope, any).
void packed_leaky_relu_backward(const PackFormat& format, const void* packed, const void* grad,
                                double slope, void* out);

// Of `two_values`: mul(other, packed) or, if packed_first, mul(packed, other).
void packed_mul(const PackFormat& format, const void* packed, const void* other, bool packed_first,
                void* out);

}  // namespace remat::detail
