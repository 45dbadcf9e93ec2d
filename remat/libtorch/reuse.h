// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "remat/libtorch/trace.h"

namespace remat::detail {

// Pairs (result, source) of storages, such that the op may write the result over the source. Safe
// are ops that compute each element of the result from the source's element at the same address,
// after reading it: those LibTorch calls pointwise, where both tensors have the same type, sizes
// and strides, and those that op_traits.cc calls row-wise, each with a test.
std::vector<std::pair<StorageNumber, StorageNumber>> reuse_pairs(const SeenOp& op,
                                                                const Trace& trace);

}  // namespace remat::detail
