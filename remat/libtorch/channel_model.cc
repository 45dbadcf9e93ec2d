// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/channel_model.h"

#include "remat/libtorch/channel_speed.h"

namespace remat::detail {

ChannelModel model_of(Channel& channel, int64_t scratch_bytes) {
  const ChannelSpeed speed = measure_channel(channel, scratch_bytes);
  return {.write_bytes_per_s = static_cast<int64_t>(speed.write_bytes_per_second),
          .read_bytes_per_s = static_cast<int64_t>(speed.read_bytes_per_second),
          .latency_ns = speed.latency_ns,
          .alignment = channel.alignment_bytes()};
}

}  // namespace remat::detail
