// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/repair.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "remat/core/order/transfers.h"

namespace remat {
namespace {

constexpr size_t kEvaluatedPerStep = 12;  // insertions: estimates are rough, evaluating an order is not cheap
constexpr int kOtherPositions = 3;        // tried where nothing helps at the peak
// In a noisy step each ratio is multiplied by a random number from this range.
constexpr double kLeastNoise = 0.7;
constexpr double kNoiseRange = 0.6;
// Of insertions made together.
constexpr size_t kMostOpsOneByOne = 1'500;  // of a graph; above, insertions are made many at a time
constexpr size_t kConsideredTogether = 1'000;
// How much they free at first, as a share of what is too much at the peak; half of that while it does not
// help, down to the second.
constexpr double kFirstShare = 0.5;
constexpr double kLeastShare = 0.01;

}  // namespace

bool Repair::run(FoundOrder& found) {
  const bool many = context_.insert_many && context_.graph.ops.size() > kMostOpsOneByOne;
  while (!found.fits && !effort_.exhausted() && ((many && insert_many(found)) || step(found))) {
  }
  return found.fits;
}

void Repair::look_at(FoundOrder& found) {
  // Of the found order, not of the trial evaluated last.
  found.cost = context_.evaluate(found.order, effort_);
  finder_.look_at(found.order, effort_);
}

// A large graph needs thousands of insertions, and its equal layers offer the same one many times: the
// best ratios are inserted together.
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
    std::vector<OpId> order = with_insertions(found.order, chosen);
    const OrderCost::Result cost = context_.evaluate(order, effort_);
    if (!cost.legal) continue;
    FoundOrder trial = FoundOrder::of(std::move(order), cost);
    context_.retime(trial, effort_);
    if (trial.cost.overflow >= found.cost.overflow) continue;
    found = std::move(trial);
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
    // Nothing helps at the peak: another position above the budget is tried.
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
    if (insertion.in_time) {
      order = with_transfers_in_time(context_.graph, context_.cost, order);
      effort_.spend(OrderCost::kWorkPerOp * static_cast<int64_t>(order.size()));
    }
    const OrderCost::Result cost = context_.evaluate(order, effort_);
    if (!cost.legal || cost.overflow >= found.cost.overflow) continue;
    const double noise = options.noisy ? kLeastNoise + kNoiseRange * context_.random.unit() : 1.0;
    // An insertion can also shorten waits; then it counts as free.
    const int64_t more_ns = std::max<int64_t>(0, cost.time_ns - found.cost.time_ns);
    const double found_ratio =
        noise * ratio(found.cost.overflow - cost.overflow, more_ns + insertion.price_ns);
    if (found_ratio <= best_ratio) continue;
    best_ratio = found_ratio;
    best = FoundOrder::of(std::move(order), cost);
  }
  return best;
}

}  // namespace remat
