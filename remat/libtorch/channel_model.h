// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/core/graph.h"
#include "remat/libtorch/channel.h"

namespace remat::detail {

// What a planner takes a channel for, measured with so much memory (channel_speed.h).
ChannelModel model_of(Channel& channel, int64_t scratch_bytes);

}  // namespace remat::detail
