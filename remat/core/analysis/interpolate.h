// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "remat/core/graph.h"

namespace remat {

// The graph of a program at a size at which it was not recorded.
//
// A program with a larger batch, longer sequences or larger images calls the same ops on larger
// tensors. So the graphs of a few sizes say what the graph of another one is, number by number:
//
//     batch      2       4       7 (interpolated)
//     w         64      64      64                  a parameter
//     a1        32      64     112                  an activation
//     conv    9 us   13 us   19 us
//
// Exact where the numbers follow the polynomial: bytes of dense tensors do, affine in the batch
// and quadratic in the length of a sequence or the side of an image (where the strides divide it).
// Estimates are the times; the workspaces, since kernels choose their blocks by size; and bytes
// that grow otherwise (attention over an image's patches is quartic in its side).

enum class Growth : uint8_t { affine = 1, quadratic = 2 };

// How many sizes must be known.
constexpr size_t sizes_needed(Growth growth) { return static_cast<size_t>(growth) + 1; }

inline constexpr int64_t kLargestProgramSize = int64_t{1} << 22;  // all sums are exact up to here

struct SizedGraph {
  int64_t size = 0;
  Graph graph;
};

// The first thing in which two graphs differ other than in bytes and times: they are then not of
// one program. A clause: "op 3 is conv2 (aten::convolution) in one and relu (aten::relu) in the
// other".
std::optional<std::string> program_difference(const Graph& a, const Graph& b);

// At a known size that graph itself, else every number by the polynomial through those known sizes
// that are nearest (of two as near, the smaller). Bytes are rounded up, times to the nearest; what
// would be negative is 0.
//
// Throws Error if fewer sizes than needed are known, if one is given twice, is not positive or too
// large, if the graphs are not of one program, or if a sum of the result is too large for a graph.
Graph interpolate(std::span<const SizedGraph> known, int64_t size, Growth growth);

}  // namespace remat
