// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace remat::bench {

// What an op does, as far as its time depends on it.
struct Work {
  int64_t flops = 0;           // of contractions: a multiply and an add are two
  int64_t moved_bytes = 0;     // read plus written
  int64_t random_numbers = 0;  // drawn from the generator
};

// The time of an op on a plain CPU, in whole numbers so that every machine writes the same graph:
//
//     2 us to dispatch + max(flops / 100 GFLOP/s, bytes / 20 GB/s) + 2 ns for each random number
//
// The maximum is the roofline: a depthwise convolution is bound by memory, a dense one by
// arithmetic. A model, not a measurement: what matters to a planner is which ops are expensive and by
// how much.
int64_t time_ns(const Work& work);

// Scratch of a matrix product: packed panels of both operands, 4 MiB at most.
int64_t matmul_workspace_bytes(int64_t operand_bytes);

// Scratch of a convolution: blocked copies of the weight and, for each of two threads, of one
// image's input and output.
int64_t convolution_workspace_bytes(int64_t weight_bytes, int64_t image_bytes);

}  // namespace remat::bench
