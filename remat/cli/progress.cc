// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/progress.h"

#include <unistd.h>

#include <iostream>

namespace remat {

using Clock = std::chrono::steady_clock;

Progress::Progress()
    : next_(Clock::now() + std::chrono::seconds(1)), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (written_) std::cerr << "\r\033[K" << std::flush;
}

bool Progress::wanted() { return terminal_ && Clock::now() >= next_; }

void Progress::show(const std::string& line) {
  if (!terminal_) return;
  next_ = Clock::now() + std::chrono::milliseconds(100);
  written_ = true;
  std::cerr << "\r\033[K" << line << std::flush;
}

}  // namespace remat
