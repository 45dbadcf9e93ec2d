// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/capturing.h"

#include <pthread.h>

#include <utility>

namespace remat::detail {
namespace {

thread_local bool is_capturing = false;

}  // namespace

bool capturing() { return is_capturing; }

CapturingGuard::CapturingGuard() : previous_(std::exchange(is_capturing, true)) {
  // A process that is forked inside of a step is not part of it.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { is_capturing = false; });
  (void)registered;
}

CapturingGuard::~CapturingGuard() { is_capturing = previous_; }

}  // namespace remat::detail
