// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/fault_handler.h"

#include <signal.h>

#include <cerrno>
#include <mutex>

namespace remat::detail {
namespace {

struct Handler {
  std::once_flag installed;
  FaultMender mend = nullptr;
  struct sigaction previous = {};
};

Handler of_segv;
Handler of_bus;

Handler& handler_of(int signal_number) { return signal_number == SIGBUS ? of_bus : of_segv; }

void on_fault(int signal_number, siginfo_t* info, void* context) {
  const Handler& handler = handler_of(signal_number);
  const int error = errno;
  const bool mended = handler.mend(info->si_addr);
  errno = error;
  if (mended) {
    return;
  }
  const struct sigaction& previous = handler.previous;
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal_number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal_number);
  } else {
    sigaction(signal_number, &previous, nullptr);  // the same fault again, without us
  }
}

}  // namespace

void install_fault_handler(int signal_number, FaultMender mend) {
  Handler& handler = handler_of(signal_number);
  std::call_once(handler.installed, [&] {
    handler.mend = mend;
    struct sigaction action = {};
    action.sa_sigaction = &on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, &handler.previous);
  });
}

}  // namespace remat::detail
