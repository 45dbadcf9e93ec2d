// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/sweep.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace remat::detail {
namespace {

constexpr int64_t kTurnsPerItem = 300;  // of the annealing
constexpr int64_t kTurnsPerNode = 64;
// One side may count this much more than usual, and the other that much less.
constexpr double kMostBias = 7.4;
constexpr double kHeatOfVariants = 0.2;  // of what makes a new stack
constexpr double kCooling = 1e-3;
constexpr int32_t kFree = -1;  // in a stack: what is free at the peak

}  // namespace

Sweep::Sweep(const PackingProblem& problem, int64_t height)
    : problem_(problem),
      height_(height),
      right_(problem, height, /*backwards=*/false),
      left_(problem, height, /*backwards=*/true),
      free_at_peak_(height) {
  for (size_t i = 0; i < problem.item_count(); ++i) {
    const BeamSide::Life& life = right_.life[i];
    if (!life.at_peak() || life.size > free_at_peak_) continue;
    free_at_peak_ -= life.size;
    best_stack_.push_back(static_cast<int32_t>(i));
  }
  if (free_at_peak_ > 0) best_stack_.push_back(kFree);
}

Offsets Sweep::next(SearchBudget& budget) {
  std::vector<int32_t> stack = best_stack_;
  // In turn something new, and something like the best so far.
  anneal(stack, rounds_ % 2 == 0 ? 1 : kHeatOfVariants);
  ++rounds_;
  budget.pay(kTurnsPerItem * static_cast<int64_t>(stack.size()) / kTurnsPerNode);
  Offsets offsets(problem_.item_count(), kNotPlaced);
  int64_t bottom = 0;
  for (const int32_t item : stack) {
    if (item != kFree) offsets[static_cast<size_t>(item)] = bottom;
    bottom += item == kFree ? free_at_peak_ : right_.life[static_cast<size_t>(item)].size;
  }
  fill_side(right_, offsets, budget);
  fill_side(left_, offsets, budget);
  const double left_out = area_left_out(offsets);
  if (left_out < least_left_out_) best_stack_ = std::move(stack);
  least_left_out_ = std::min(least_left_out_, left_out);
  return offsets;
}

double Sweep::area_left_out(const Offsets& offsets) const {
  double area = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] == kNotPlaced) area += problem_.area(i);
  }
  return area;
}

// The stack as a tour from wall to wall through points whose two coordinates are the ends of an item on
// both sides: the shortest one is looked for by reversing stretches of it. Either side may count more
// than the other.
void Sweep::anneal(std::vector<int32_t>& stack, double heat) {
  const auto unit = [&] { return static_cast<double>(random_() >> 11) * 0x1.0p-53; };
  const double bias = std::pow(kMostBias, 2 * unit() - 1);
  const auto distance = [&](size_t a, size_t b) {  // from 1 on; walls before and after
    const auto until = [&](const BeamSide& side, size_t at) {
      if (at == 0 || at > stack.size()) return side.weight_before.back();
      const int32_t item = stack[at - 1];
      return item == kFree ? side.weight_before[1] : side.life[static_cast<size_t>(item)].until;
    };
    return bias * std::abs(until(right_, a) - until(right_, b)) +
           std::abs(until(left_, a) - until(left_, b)) / bias;
  };
  if (heat == 1) {
    for (size_t i = stack.size(); i > 1; --i) std::swap(stack[i - 1], stack[random_() % i]);
  }
  double length = 0;
  for (size_t i = 0; i <= stack.size(); ++i) length += distance(i, i + 1);
  heat *= length / static_cast<double>(stack.size());
  const int64_t turns = kTurnsPerItem * static_cast<int64_t>(stack.size());
  const double cooling = std::pow(kCooling, 1.0 / static_cast<double>(turns));
  for (int64_t turn = 0; turn < turns; ++turn, heat *= cooling) {
    size_t i = random_() % stack.size(), j = random_() % stack.size();
    if (i > j) std::swap(i, j);
    const double longer =
        distance(i, j + 1) + distance(i + 1, j + 2) - distance(i, i + 1) - distance(j + 1, j + 2);
    if (longer > 0 && unit() >= std::exp(-longer / heat)) continue;
    std::reverse(stack.begin() + static_cast<std::ptrdiff_t>(i),
                 stack.begin() + static_cast<std::ptrdiff_t>(j) + 1);
  }
}

}  // namespace remat::detail
