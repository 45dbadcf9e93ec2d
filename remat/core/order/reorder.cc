// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/reorder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "remat/core/order/shifts.h"

namespace remat {
namespace {

constexpr size_t kFarthestShift = 256;
constexpr int64_t kEvaluationsToPrepare = 5;  // as many take as long as to prepare OrderShifts
constexpr int64_t kWorkPerShift = 24;          // and one for each place that is passed
// A shift changes the overflow by whole values, however little there is of it. So the heat is at least that
// of an overflow of this part of the budget.
constexpr double kLeastOverflow = 0.05;
constexpr double kAnyWorse = std::numeric_limits<double>::infinity();
constexpr double kNoZero = 1e-12;  // added to a random number before its logarithm is taken

struct Shift {
  size_t from;
  size_t to;
};

// Charged though nothing can be moved: in a chain no op can, and trying must end.
std::optional<Shift> random_shift(Random& random, const OrderShifts& shifts, Effort& effort) {
  const size_t from = random.below(shifts.size());
  const bool later = (random.next() & 1) != 0;
  const size_t farthest = shifts.reach(from, later);
  effort.spend(kWorkPerShift);
  if (farthest == 0) return std::nullopt;
  const size_t distance = 1 + random.below(std::min(farthest, 1 + random.below(kFarthestShift)));
  effort.spend(static_cast<int64_t>(distance));
  return Shift{from, later ? from + distance : from - distance};
}

}  // namespace

void reorder(SearchContext& context, FoundOrder& found, int64_t work, Effort& effort, double heat) {
  if (context.keep_order || found.fits) return;
  OrderShifts shifts(context.graph, context.cost, context.passing, found.order, context.budget_bytes);
  Effort own = effort.part(work);
  own.spend(kEvaluationsToPrepare * OrderCost::kWorkPerOp * static_cast<int64_t>(shifts.size()));
  const double hot =
      heat * std::max(shifts.overflow(), kLeastOverflow * static_cast<double>(context.budget_bytes));
  double least = shifts.overflow();
  bool at_least = false;  // the shifts are made, and found.order is not yet
  while (least > 0 && !own.exhausted()) {
    const double cooling = 1.0 - own.progress();
    const std::optional<Shift> shift = random_shift(context.random, shifts, own);
    if (!shift) continue;
    const double tolerance = -std::log(kNoZero + context.random.unit()) * hot * cooling * cooling;
    if (!shifts.try_shift(shift->from, shift->to, tolerance)) continue;
    if (shifts.overflow() < least) {
      least = shifts.overflow();
      at_least = true;
    } else if (at_least && shifts.overflow() > least) {
      // Only now is it worth a copy: most improvements are followed by another one.
      shifts.try_shift(shift->to, shift->from, kAnyWorse);
      found.order = shifts.order();
      shifts.try_shift(shift->from, shift->to, kAnyWorse);
      at_least = false;
    }
  }
  found = context.start(at_least ? shifts.order() : std::move(found.order), effort);
}

void flatten(SearchContext& context, FoundOrder& found, int64_t line_bytes, int64_t tries,
             Effort& effort) {
  OrderShifts shifts(context.graph, context.cost, context.passing, found.order, line_bytes);
  for (int64_t i = 0; i < tries && !effort.exhausted(); ++i) {
    const std::optional<Shift> shift = random_shift(context.random, shifts, effort);
    if (shift) shifts.try_shift(shift->from, shift->to, 0, found.cost.peak_bytes);
  }
  found = context.start(shifts.order(), effort);
}

}  // namespace remat
