// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "remat/libtorch/recorder.h"

namespace remat::detail {

// What a recorder saw, as a graph (times still 0) and the tape that goes with it. Needless ops are
// left out, storages numbered as the graph numbers them.
Recording to_recording(Recorder& recorder, const std::vector<TensorView>& batch,
                       const TensorView& loss,
                       const std::vector<std::optional<TensorView>>& gradients);

}  // namespace remat::detail
