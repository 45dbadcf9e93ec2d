// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/core/simulate.h"
#include "remat/report/text_style.h"

namespace remat {

// One bar: `value` is drawn full and, where `before` is more, the rest of it as an empty one.
//
//   activation   400 MiB   ████████████░░░░░░░░░░░░░░
struct Bar {
  std::vector<std::string> cells;  // before the bar, lined up: the first to the left, others to the right
  int64_t value = 0;
  int64_t before = 0;
  int colour = 0;  // of the 256 of a terminal; 0 is none
};

// Lines of text, the largest value or `before` as wide as the style's columns allow. A value above zero
// has at least a sliver.
std::string bar_chart(const std::vector<std::string>& header, const std::vector<Bar>& bars,
                      const TextStyle& style);

// What is resident at a peak, a bar for each role that has bytes in either of the two moments: `now` beside
// what it was `before` (null: nothing to compare with).
std::string peak_chart(const Moment& now, const Moment* before, const TextStyle& style);

}  // namespace remat
