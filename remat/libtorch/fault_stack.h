// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace remat::detail {

// Calls `work` from a signal handler on a stack that is large enough for a whole training step. A handler
// that was given an alternate stack (Python's faulthandler, which pytest switches on, and the
// sanitizers give one of a few kilobytes) would write over what lies below it. Must not throw.
void call_on_large_stack(const std::function<void()>& work) noexcept;

}  // namespace remat::detail
