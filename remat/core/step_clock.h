// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "remat/core/graph.h"

namespace remat {

// The one model of time. Ops run one after the other; transfers go on beside them, one after the other in
// the order in which they begin. An op that needs a transfer waits for its end, and so does the end of the step for
// its outputs.
//
//     ops       f1 ██ f2 ████ f3 ███  free a: waits ░░░ b3 ████
//     channel         ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//               offload a begins                      ends
class StepClock {
 public:
  // The channel must outlive it.
  explicit StepClock(const std::optional<ChannelModel>& channel) : channel_(channel ? &*channel : nullptr) {}

  int64_t now_ns() const { return now_ns_; }
  int64_t waited_ns() const { return waited_ns_; }

  void run(int64_t time_ns) { now_ns_ += time_ns; }
  void wait_until(int64_t end_ns) {
    waited_ns_ += std::max<int64_t>(0, end_ns - now_ns_);
    now_ns_ = std::max(now_ns_, end_ns);
  }
  // When a transfer that begins now ends. A graph without a channel has none.
  int64_t write(int64_t bytes) { return transfer(channel_ ? channel_->write_ns(bytes) : 0); }
  int64_t read(int64_t bytes) { return transfer(channel_ ? channel_->read_ns(bytes) : 0); }

 private:
  static constexpr int64_t kForeverNs = int64_t{1} << 62;  // what a file asks for may add up to more

  int64_t transfer(int64_t time_ns) {
    const int64_t begin_ns = std::min(kForeverNs, std::max(channel_free_ns_, now_ns_));
    channel_free_ns_ = std::min(kForeverNs, begin_ns + time_ns);
    return channel_free_ns_;
  }

  const ChannelModel* channel_;
  int64_t now_ns_ = 0;
  int64_t waited_ns_ = 0;
  int64_t channel_free_ns_ = 0;  // from when on it could begin another transfer
};

}  // namespace remat
