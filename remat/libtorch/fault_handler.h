// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace remat::detail {

// Whether a fault at this address was ours, and is mended: what faulted is then tried again. Called inside a
// signal handler.
using FaultMender = bool (*)(void* address);

// Installs `mend` for SIGSEGV or SIGBUS. Faults that it does not take go to the handler that was there before.
// Each signal is installed once; other calls for it change nothing.
void install_fault_handler(int signal_number, FaultMender mend);

}  // namespace remat::detail
