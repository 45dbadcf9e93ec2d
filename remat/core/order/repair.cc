// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/repair.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace remat {
namespace {

constexpr size_t kEvaluatedPerStep = 12;
constexpr int kOtherPositions = 3;  // tried where nothing helps at the peak
// In a noisy step each ratio is multiplied by a random number from this range.
constexpr double kLeastNoise = 0.7;
constexpr double kNoiseRange = 0.6;
// Of insertions made together.
constexpr size_t kMostOpsOneByOne = 1'500;  // of a graph; above, insertions are made many at a time
constexpr size_t kConsideredTogether = 1'000;
constexpr double kFirstShare =
    0.5;  // of what is too much at the peak; half of it if that does not help,
constexpr double kLeastShare = 0.01;  // down to this

}  // namespace

bool Repair::run(FoundOrder& found) {
  const bool many = context_.graph.ops.size() > kMostOpsOneByOne;
  while (!found.fits && !effort_.exhausted() && ((many && insert_many(found)) || step(found))) {
  }
  return found.fits;
}

void Repair::look_at(FoundOrder& found) {
  // Of the found order, not of the trial evaluated last.
  found.cost = context_.evaluate(found.order, effort_);
  finder_.look_at(found.order, effort_);
}

// In a large graph one insertion at a time would take for ever, and its layers offer the same bargain
// many times over: takes the best ratios together.
bool Repair::insert_many(FoundOrder& found) {
  look_at(found);
  const size_t peak = found.cost.peak_position;
  const std::vector<Insertion> insertions = finder_.at(peak, kConsideredTogether, {}, effort_);
  const double excess =
      static_cast<double>(finder_.profile().resident_bytes(peak) - context_.budget_bytes);
  for (double share = kFirstShare; share > kLeastShare; share /= 2) {
    std::vector<Insertion> chosen;
    std::vector<bool> taken(context_.cost.value_count(), false);
    double bytes = 0;
    for (const Insertion& insertion : insertions) {
      if (bytes >= share * excess) break;
      const size_t target = static_cast<size_t>(insertion.target);
      if (taken[target]) continue;
      taken[target] = true;
      bytes += static_cast<double>(context_.cost.bytes(insertion.target));
      chosen.push_back(insertion);
    }
    if (chosen.size() < 2) return false;
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const Insertion& a, const Insertion& b) { return a.before < b.before; });
    std::vector<OpId> order = with_insertions(found.order, chosen);
    const OrderCost::Result cost = context_.evaluate(order, effort_);
    if (!cost.legal || cost.overflow >= found.cost.overflow) continue;
    found = {.order = std::move(order), .cost = cost, .fits = cost.overflow == 0};
    return true;
  }
  return false;
}

bool Repair::step(FoundOrder& found, const RepairOptions& options) {
  if (effort_.exhausted()) return false;
  look_at(found);
  size_t position = found.cost.peak_position;
  for (int tried = 0; tried <= kOtherPositions; ++tried) {
    if (std::optional<FoundOrder> best = best_insertion(found, position, options)) {
      found = std::move(*best);
      return true;
    }
    // Nothing at the peak helps: another place above the budget may be a way round.
    const size_t above = finder_.profile().count_above();
    if (above == 0) return false;
    position = finder_.profile().nth_above(context_.random.below(above));
  }
  return false;
}

std::optional<FoundOrder> Repair::best_insertion(const FoundOrder& found, size_t position,
                                                 const RepairOptions& options) {
  std::optional<FoundOrder> best;
  double best_ratio = 0;
  for (const Insertion& insertion :
       finder_.at(position, kEvaluatedPerStep, options.tabu, effort_)) {
    std::vector<OpId> order = with_insertions(found.order, {&insertion, 1});
    const OrderCost::Result cost = context_.evaluate(order, effort_);
    if (!cost.legal || cost.overflow >= found.cost.overflow) continue;
    const double noise = options.noisy ? kLeastNoise + kNoiseRange * context_.random.unit() : 1.0;
    const double found_ratio =
        noise * ratio(found.cost.overflow - cost.overflow, cost.time_ns - found.cost.time_ns);
    if (found_ratio <= best_ratio) continue;
    best_ratio = found_ratio;
    best = FoundOrder{.order = std::move(order), .cost = cost, .fits = cost.overflow == 0};
  }
  return best;
}

}  // namespace remat
