// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "remat/libtorch/device.h"

namespace remat::testing {

// The CPU's device while it lives, but for what a test sets.
class FakeDevice final : public detail::Device {
 public:
  FakeDevice() : real_(detail::cpu_device()), guard_(*this) {}

  std::function<int64_t()> clock = {};  // in place of the time
  std::optional<detail::MemoryPressure> pressure = {};
  std::optional<int64_t> available = {};

  // Every look at the clock is so much later than the one before: a busy machine, a slow disk or a sanitizer changes
  // nothing.
  void tick_by(int64_t ns) {
    clock = [this, ns] { return ticks_ += ns; };
  }

  int64_t real_now_ns() { return real_.now_ns(); }

  void* reserve(int64_t bytes) override { return real_.reserve(bytes); }
  void release(void* memory, int64_t bytes) override { real_.release(memory, bytes); }
  void discard(void* memory, int64_t bytes) override { real_.discard(memory, bytes); }
  void trim() override { real_.trim(); }
  void copy(void* to, const void* from, int64_t bytes) override { real_.copy(to, from, bytes); }
  std::unique_ptr<detail::Channel> open_channel(const std::string& folder) override {
    return real_.open_channel(folder);
  }
  int64_t now_ns() override { return clock ? clock() : real_.now_ns(); }
  int64_t available_bytes() override { return available.value_or(real_.available_bytes()); }
  int64_t resident_bytes() override { return real_.resident_bytes(); }
  detail::MemoryPressure memory_pressure() override { return pressure.value_or(real_.memory_pressure()); }
  int thread_count() override { return real_.thread_count(); }

 private:
  std::atomic<int64_t> ticks_ = 0;
  detail::Device& real_;
  detail::DeviceGuard guard_;
};

}  // namespace remat::testing
