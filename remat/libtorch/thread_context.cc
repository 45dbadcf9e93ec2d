// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/thread_context.h"

#include <ATen/autocast_mode.h>

namespace remat::detail {

ThreadContext ThreadContext::capture(c10::DeviceType device) {
  ThreadContext context{c10::impl::tls_local_dispatch_key_set(),
                        c10::AutogradState::get_tls_state(),
                        device,
                        at::autocast::is_autocast_enabled(device),
                        at::autocast::is_autocast_cache_enabled(),
                        at::autocast::get_autocast_dtype(device)};
  return context;
}

ThreadContextGuard::ThreadContextGuard(const ThreadContext& context)
    : previous_(ThreadContext::capture(context.device)),
      autocast_(context.autocast),
      keys_(context.keys) {
  c10::AutogradState::set_tls_state(context.autograd);
  if (autocast_) {
    // Nesting as the user's own guard would: casts cached by the re-run are dropped at its end.
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(context.device, context.autocast_dtype);
    at::autocast::set_autocast_cache_enabled(context.autocast_cache);
  }
}

ThreadContextGuard::~ThreadContextGuard() {
  c10::AutogradState::set_tls_state(previous_.autograd);
  if (autocast_) {
    at::autocast::set_autocast_dtype(previous_.device, previous_.autocast_dtype);
    at::autocast::set_autocast_cache_enabled(previous_.autocast_cache);
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
  }
}

}  // namespace remat::detail
