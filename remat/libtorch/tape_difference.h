// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "remat/libtorch/recorder.h"

namespace remat::detail {

// What differs in two runs of the same step, as an error message that names the first op that
// does; empty if nothing.
std::string tape_difference(const Recorder& first, const Recorder& second);

// Tells apart what no op made, once the tapes agree: a storage that both runs used is held by the
// function and read anew by every step; one that each run made for itself is a constant.
void settle_constants(const Recorder& first, Recorder& second);

}  // namespace remat::detail
