// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace remat::detail {

// True on a thread that captures or follows. Checkpointed regions then run plainly: the plan decides.
bool capturing();

class CapturingGuard {
 public:
  CapturingGuard();
  ~CapturingGuard();
  CapturingGuard(const CapturingGuard&) = delete;
  CapturingGuard& operator=(const CapturingGuard&) = delete;

 private:
  bool previous_;
};

}  // namespace remat::detail
