// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/simulate.h"

// What the pages have in common. They need nothing but themselves: no scripts, no network.
namespace remat {

std::string html_escaped(const std::string& text);
// The contents of a page's <style>.
const char* html_style();

struct TimelineAxes {
  int64_t top_bytes = 0;                     // at the upper edge
  std::optional<int64_t> budget_bytes = {};  // drawn as a line; without it, the upper edge is
};

// Resident bytes over the steps, stacked by role, with a key, as one <svg>. Of a long timeline neighbours
// are drawn as one, by the largest of them.
std::string timeline_svg(const std::vector<Moment>& timeline, const TimelineAxes& axes);

}  // namespace remat
