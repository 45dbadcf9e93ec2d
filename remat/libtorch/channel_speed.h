// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "remat/libtorch/channel.h"

namespace remat::detail {

// What planners take a channel for: one queue, first in, first out, in which a request takes
// latency + bytes / bandwidth.
struct ChannelSpeed {
  double write_bytes_per_second = 0;
  double read_bytes_per_second = 0;
  int64_t latency_ns = 0;

  int64_t write_ns(int64_t bytes) const { return ns(bytes, write_bytes_per_second); }
  int64_t read_ns(int64_t bytes) const { return ns(bytes, read_bytes_per_second); }
  bool operator==(const ChannelSpeed&) const = default;

 private:
  int64_t ns(int64_t bytes, double bytes_per_second) const {
    return latency_ns + static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / bytes_per_second);
  }
};

// Measures a channel that nobody else uses, in well under half a second unless a single request
// takes longer: medians over requests of some MiB that follow each other closely. Uses so much
// memory, at least 2 MiB, and writes over the channel's first bytes. Throws Error as the channel
// does.
ChannelSpeed measure_channel(Channel& channel, int64_t scratch_bytes);

}  // namespace remat::detail
