// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "remat/libtorch/op_values.h"
#include "remat/libtorch/trace.h"

namespace remat::detail {

// Runs an op that has just run on `arguments` again, once for each of its reuse_pairs, with the
// result in the place of a copy of the source. Throws Error where any byte differs from `results`.
void check_reuse(const SeenOp& op, const Trace& trace, Values arguments, Values results);

}  // namespace remat::detail
