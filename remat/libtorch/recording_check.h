// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "remat/libtorch/tape.h"

// Whether a recording still speaks of the tensors that are there.
namespace remat::detail {

// Throws Error unless the batch has the number of tensors, shapes and types of the captured one.
void check_batch(const Recording& recording, const Batch& batch);

// What no longer looks, or lies in memory, as it did when the step was captured: a parameter or its
// gradient, as a clause; empty if nothing.
std::string layout_change(const Recording& recording);

}  // namespace remat::detail
