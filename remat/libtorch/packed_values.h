// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/units.h"
#include "remat/libtorch/packing_kernels.h"
#include "remat/libtorch/tape.h"

namespace remat::detail {

inline constexpr int64_t kLeastPackedBytes = 16 * KiB;

// Looks for values of a recording that can be kept in fewer bytes, by the op that made them and by those
// that read them, and adds them to recording.packed_values and the graph's packed_forms, with the moves
// that follow. One rule and its reason:
//
//   two_values      a dropout mask: bernoulli_, scaled; or a comparison as a float
//   bools           masks of where and masked_fill, comparisons that a program keeps: each byte is 0 or 1
//   above, between  what threshold_backward, leaky_relu_backward or hardtanh_backward compare with a number
//                   and nothing else: they read the bit that comes of it
//   pool_offsets    indices of max pooling: each lies in its window
//   narrow          indices of a sort, a maximum, an embedding or a loss: below the size of a dimension
//   from_bfloat16,  float32 made from a narrower type (autocast)
//   from_half
//
// Not packed: what clamp, clamp_min, clamp_max and maximum keep. Their backward compares it with ops of its own (ge, le,
// logical_and, where), each of which would need a form of its own; hardtanh gives the same values as clamp.
// What relies on values is checked while it is packed. Values of fewer bytes are left alone: they are not
// worth a call.
void find_packed_values(Recording& recording, int64_t least_bytes = kLeastPackedBytes);

// The name of a rule in graphs and reports.
std::string_view name(PackRule rule);

// Whether an op that reads packed bytes compares with the numbers that they were packed for.
bool compares_as_packed(const TapeOp& op, const PackedReader& reader, const PackFormat& format);

// Runs an op that can read packed bytes: `other` is its argument at reader.other.
void run_packed_reader(const PackedReader& reader, const PackFormat& format, const void* packed,
                       const void* other, void* out);

}  // namespace remat::detail
