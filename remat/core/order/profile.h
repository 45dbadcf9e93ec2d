// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace remat {

// The bytes that an order needs, position by position, and how far they are above the budget:
//
//     budget ┤╌╌╌╌┌──┐╌╌╌╌╌┌─────┐╌╌╌╌
//            │┌───┘  └─────┘     └───      the excess ends at ◀ and there is room until it begins again
//            └┴──────◀───────────◀──▶ positions
class ExcessProfile {
 public:
  void build(std::span<const int64_t> resident_bytes, int64_t budget_bytes);

  size_t size() const { return resident_.size(); }
  int64_t resident_bytes(size_t position) const { return resident_[position]; }
  // The most that is resident at a position from `from` up to `before`.
  int64_t most_resident(size_t from, size_t before) const;

  // What `bytes` less from `from` up to `before` remove of the excess, summed over positions, at most.
  double removed(size_t from, size_t before, int64_t bytes) const;

  // How many positions are above the budget, and the n-th of them.
  size_t count_above() const { return static_cast<size_t>(above_before_.back()); }
  size_t nth_above(size_t n) const;
  // The first position after this one at which an excess has just ended.
  std::optional<size_t> room_after(size_t position) const;

 private:
  std::vector<int64_t> resident_;         // by position
  std::vector<double> excess_before_;     // by position, one more: the sum of all before it
  std::vector<int32_t> above_before_;     // likewise: positions above the budget
  std::vector<int64_t> most_in_stretch_;  // of resident_, by stretches of equal length
  std::vector<size_t> ends_of_excess_;    // positions
};

}  // namespace remat
