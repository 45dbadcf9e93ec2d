// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/profile.h"

#include <algorithm>

namespace remat {
namespace {

constexpr size_t kStretch = 64;  // positions

}  // namespace

void ExcessProfile::build(std::span<const int64_t> resident_bytes, int64_t budget_bytes) {
  resident_.assign(resident_bytes.begin(), resident_bytes.end());
  excess_before_.assign(resident_.size() + 1, 0);
  above_before_.assign(resident_.size() + 1, 0);
  ends_of_excess_.clear();
  most_in_stretch_.assign(resident_.size() / kStretch + 1, 0);
  for (size_t i = 0; i < resident_.size(); ++i) {
    most_in_stretch_[i / kStretch] = std::max(most_in_stretch_[i / kStretch], resident_[i]);
    const int64_t excess = std::max<int64_t>(0, resident_[i] - budget_bytes);
    excess_before_[i + 1] = excess_before_[i] + static_cast<double>(excess);
    above_before_[i + 1] = above_before_[i] + (excess > 0 ? 1 : 0);
    if (excess == 0 && i > 0 && above_before_[i] > above_before_[i - 1])
      ends_of_excess_.push_back(i);
  }
}

int64_t ExcessProfile::most_resident(size_t from, size_t before) const {
  int64_t most = 0;
  while (from < before) {
    const bool whole = from % kStretch == 0 && from + kStretch <= before;
    most = std::max(most, whole ? most_in_stretch_[from / kStretch] : resident_[from]);
    from += whole ? kStretch : 1;
  }
  return most;
}

double ExcessProfile::removed(size_t from, size_t before, int64_t bytes) const {
  return std::min(excess_before_[before] - excess_before_[from],
                  static_cast<double>(bytes) * (above_before_[before] - above_before_[from]));
}

size_t ExcessProfile::nth_above(size_t n) const {
  const auto after =
      std::upper_bound(above_before_.begin(), above_before_.end(), static_cast<int32_t>(n));
  return static_cast<size_t>(after - above_before_.begin() - 1);
}

std::optional<size_t> ExcessProfile::room_after(size_t position) const {
  const auto end = std::lower_bound(ends_of_excess_.begin(), ends_of_excess_.end(), position + 1);
  if (end == ends_of_excess_.end()) return std::nullopt;
  return *end;
}

}  // namespace remat
