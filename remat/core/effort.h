// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace remat {

// CPU time of this thread, so that neighbours on the machine do not count.
inline double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What a search may spend. It is counted, not measured: every search says what it did, in
// nanoseconds that such work takes on an idle machine, so that the same input gives the same plan on
// a slow or loaded one too. CPU time only ends what takes many times as long as it should.
class Effort {
 public:
  // So many seconds of counted work; no more than `most_cpu_seconds` from now on.
  explicit Effort(double seconds,
                  double most_cpu_seconds = std::numeric_limits<double>::infinity())
      : left_ns_(static_cast<int64_t>(1e9 * std::min(seconds, kMostSeconds))),
        cpu_end_(thread_cpu_seconds() + most_cpu_seconds) {}

  void spend(int64_t ns) { left_ns_ -= ns; }
  int64_t left_ns() const { return std::max<int64_t>(0, left_ns_); }
  double left_seconds() const { return 1e-9 * static_cast<double>(left_ns()); }
  bool out_of_cpu() const { return thread_cpu_seconds() >= cpu_end_; }
  bool exhausted() const { return left_ns_ <= 0 || out_of_cpu(); }
  double left_cpu_seconds() const { return std::max(0.0, cpu_end_ - thread_cpu_seconds()); }
  // A part of what is left, with the same end of CPU time.
  Effort part(double seconds) const { return Effort(std::min(seconds, left_seconds()), left_cpu_seconds()); }

 private:
  static constexpr double kMostSeconds = 1e9;
  int64_t left_ns_;
  double cpu_end_;
};

}  // namespace remat
