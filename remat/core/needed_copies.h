// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace remat {

// How many copies of each value are needed from a place in an order on, found by going back from the order's
// end. A run takes a value from the copy in which it was made last, so what a run makes serves what comes
// after it up to where the value is made again:
//
//     order          f1    f1    f2    b1           from the right
//     a is read      .     .     yes   yes          one copy is needed before f2: any number of readers share it
//     a is made      no    yes                      the second f1 makes it; the first makes one that nothing needs
//
// An update uses up the copy that it changes, so before it one more is needed. Values by number.
class NeededCopies {
 public:
  explicit NeededCopies(size_t values) : copies_(values, 0) {}
  void reset() { std::fill(copies_.begin(), copies_.end(), 0); }

  int32_t count(size_t value) const { return copies_[value]; }
  bool needed(size_t value) const { return copies_[value] > 0; }

  // A run makes a copy. Says whether one was needed.
  bool make(size_t value) {
    if (copies_[value] == 0) return false;
    --copies_[value];
    return true;
  }
  // A run, or the end of the step, reads a copy. Says whether it is the last to need one.
  bool read(size_t value) {
    if (copies_[value] > 0) return false;
    copies_[value] = 1;
    return true;
  }
  // A run changes a copy of one version into one of the next. Says whether that was needed.
  bool change(size_t before, size_t after) {
    const bool was_needed = make(after);
    ++copies_[before];
    return was_needed;
  }

 private:
  std::vector<int32_t> copies_;  // by value
};

}  // namespace remat
