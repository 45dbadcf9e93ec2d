// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "remat/report/text_style.h"

namespace remat {

// One line on standard error that says what is going on, if that is a terminal and the work takes
// more than a second. Gone when the object is.
//
//   measuring 161 ops  ━━━━━━━━━━━━━━────────  62 %
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool wanted();  // it is time for another line
  void show(const std::string& line);
  // With a bar: `done` is the part of the work, 0 to 1, that is behind us; `more` stands after it.
  void show(const std::string& line, double done, const std::string& more = {});

 private:
  void write(const std::string& line);

  std::chrono::steady_clock::time_point next_;
  bool terminal_;
  TextStyle style_;
  bool written_ = false;
};

}  // namespace remat
