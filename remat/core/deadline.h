// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace remat {

// A moment that many seconds from its construction.
class Deadline {
 public:
  explicit Deadline(double seconds) : end_(Clock::now() + std::chrono::duration<double>(seconds)) {}

  // 0 once it has passed.
  double left_seconds() const {
    return std::max(0.0, std::chrono::duration<double>(end_ - Clock::now()).count());
  }
  bool passed() const { return left_seconds() <= 0; }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
};

}  // namespace remat
