// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

namespace remat {

// One line on standard error that says what is going on, if that is a terminal and the work takes
// more than a second. Gone when the object is.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool wanted();  // it is time for another line
  void show(const std::string& line);

 private:
  std::chrono::steady_clock::time_point next_;
  bool terminal_;
  bool written_ = false;
};

}  // namespace remat
