// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/problem.h"

#include <algorithm>
#include <numeric>

#include "remat/core/error.h"

namespace remat {

size_t PackingProblem::add(std::span<const Part> parts) {
  REMAT_ASSERT(!parts.empty());
  for (size_t p = 0; p < parts.size(); ++p) {
    REMAT_ASSERT(parts[p].size > 0 && parts[p].first <= parts[p].last);
    REMAT_ASSERT(parts[p].first >= (p == 0 ? 0 : parts[p - 1].last + 1));
  }
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  ends_.push_back(parts_.size());
  tick_count_ = std::max(tick_count_, parts.back().last + 1);
  return ends_.size() - 1;
}

int64_t PackingProblem::size(size_t item) const {
  int64_t size = 0;
  for (const Part& part : parts(item)) size = std::max(size, part.size);
  return size;
}

double PackingProblem::area(size_t item) const {
  double area = 0;
  for (const Part& part : parts(item)) {
    area += static_cast<double>(part.size) * (part.last - part.first + 1);
  }
  return area;
}

std::vector<int64_t> PackingProblem::load() const {
  std::vector<int64_t> load(static_cast<size_t>(tick_count_) + 1, 0);
  for (const Part& part : parts_) {
    load[static_cast<size_t>(part.first)] += part.size;
    load[static_cast<size_t>(part.last) + 1] -= part.size;
  }
  std::partial_sum(load.begin(), load.end(), load.begin());
  load.pop_back();
  return load;
}

int64_t PackingProblem::largest_load() const {
  const std::vector<int64_t> load = this->load();
  return load.empty() ? 0 : *std::ranges::max_element(load);
}

int32_t PackingProblem::fullest_tick() const {
  const std::vector<int64_t> load = this->load();
  return load.empty() ? 0 : static_cast<int32_t>(std::ranges::max_element(load) - load.begin());
}

int64_t height_of(const PackingProblem& problem, const Offsets& offsets) {
  int64_t height = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] != kNotPlaced) height = std::max(height, offsets[i] + problem.size(i));
  }
  return height;
}

PackingProblem without_idle_ticks(const PackingProblem& problem) {
  const size_t ticks = static_cast<size_t>(problem.tick_count());
  std::vector<char> starts(ticks, 0), ends(ticks, 0);
  for (size_t i = 0; i < problem.item_count(); ++i) {
    for (const Part& part : problem.parts(i)) {
      starts[static_cast<size_t>(part.first)] = 1;
      ends[static_cast<size_t>(part.last)] = 1;
    }
  }
  std::vector<int32_t> kept_before(ticks + 1, 0);  // how many ticks before this one are kept
  bool fresh = false;
  for (size_t t = 0; t < ticks; ++t) {
    fresh = fresh || starts[t] != 0;
    const bool keep = fresh && ends[t] != 0;
    kept_before[t + 1] = kept_before[t] + (keep ? 1 : 0);
    if (keep) fresh = false;
  }
  PackingProblem result;
  std::vector<Part> parts;
  for (size_t i = 0; i < problem.item_count(); ++i) {
    parts.clear();
    for (const Part& part : problem.parts(i)) {
      parts.push_back({kept_before[static_cast<size_t>(part.first)],
                       kept_before[static_cast<size_t>(part.last) + 1] - 1, part.size});
    }
    result.add(parts);
  }
  return result;
}

}  // namespace remat
