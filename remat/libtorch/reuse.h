// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "remat/libtorch/recorder.h"

namespace remat::detail {

// Pairs (result, source) of storages, such that the op may write the result over the source. Safe
// are ops that compute each element of the result from the source's element at the same address,
// after reading it: those LibTorch calls pointwise, where both tensors have the same type, sizes
// and strides, and a few more that are listed, each with a test.
std::vector<std::pair<int32_t, int32_t>> reuse_pairs(const SeenOp& op,
                                                     const std::vector<SeenStorage>& storages);

}  // namespace remat::detail
