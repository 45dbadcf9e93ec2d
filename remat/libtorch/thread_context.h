// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace remat::detail {

// The thread-local state that decides what an op does: grad and inference mode, the dispatch keys
// (which hold autocast's on/off) and autocast's type. Taken where a region first runs and put in
// place where it runs again, which may be another thread.
struct ThreadContext {
  static ThreadContext capture(c10::DeviceType device);

  c10::impl::LocalDispatchKeySet keys;
  c10::AutogradState autograd;
  c10::DeviceType device;
  bool autocast = false;
  bool autocast_cache = false;
  c10::ScalarType autocast_dtype;
};

class ThreadContextGuard {
 public:
  explicit ThreadContextGuard(const ThreadContext& context);
  ~ThreadContextGuard();
  ThreadContextGuard(const ThreadContextGuard&) = delete;
  ThreadContextGuard& operator=(const ThreadContextGuard&) = delete;

 private:
  ThreadContext previous_;
  bool autocast_;
  c10::impl::ForceDispatchKeyGuard keys_;
};

}  // namespace remat::detail
