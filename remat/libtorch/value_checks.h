// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "remat/libtorch/trace.h"

namespace remat::detail {

// By op of a trace: whether it may throw on the values it finds (an index out of range). An update that
// cannot be taken back waits for these. Not for an op of backward that looks with the same indices into
// a tensor of the same sizes as an op before it, which would have thrown already:
//
//   forward   y = index(x, [rows])                 may fail
//   backward  dx = index_put_(zeros, [rows], dy)   cannot
std::vector<bool> ops_that_may_fail(const Trace& trace);

}  // namespace remat::detail
