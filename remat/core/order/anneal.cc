// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/anneal.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "remat/core/mutual_order.h"
#include "remat/core/order/reruns.h"

namespace remat {
namespace {

// Temperatures, in percent of the step's time.
constexpr double kHot = 1.0;
constexpr double kCold = 0.01;
// Weights of the overflow: at first an order may be far above the budget, in the end hardly at all.
constexpr double kLightWeight = 3;
constexpr double kHeavyWeight = 300;
// Of the three kinds of change. Most insertions are refused, so that fewer erasures keep the balance.
constexpr double kInsertShare = 0.3;
constexpr double kEraseShare = 0.2;
// An insertion stands right before the use as often as somewhere up to so far ahead of it.
constexpr double kRightBeforeUse = 0.5;
constexpr size_t kFarthestAhead = 32;
constexpr double kNoZero = 1e-12;  // added to a random number before its logarithm is taken

class Annealing {
 public:
  explicit Annealing(SearchContext& context) : context_(context), random_(context.random) {}

  void run(FoundOrder& best, Effort& effort) {
    FoundOrder current = best;
    std::vector<OpId> trial;
    while (!effort.exhausted()) {
      const double temperature = kHot * std::pow(kCold / kHot, effort.progress());
      const double weight = kLightWeight * std::pow(kHeavyWeight / kLightWeight, effort.progress());
      trial = current.order;
      const bool changed = change(trial);
      effort.spend(static_cast<int64_t>(trial.size()));
      if (!changed) continue;
      const OrderCost::Result cost = context_.evaluate(trial, effort);
      if (!cost.legal) continue;
      const double worse = energy(cost, weight) - energy(current.cost, weight);
      if (worse > -std::log(kNoZero + random_.unit()) * temperature) continue;
      current.order.swap(trial);
      current.cost = cost;
      current.fits = cost.overflow == 0;
      if (current.fits && (!best.fits || current.cost.time_ns < best.cost.time_ns)) best = current;
    }
  }

 private:
  double energy(const OrderCost::Result& cost, double weight) const {
    const int64_t overhead_ns = cost.time_ns - context_.once_ns;
    return 100.0 * static_cast<double>(overhead_ns) / static_cast<double>(context_.once_ns + 1) +
           weight * cost.overflow / (static_cast<double>(context_.budget_bytes) + 1);
  }

  bool change(std::vector<OpId>& order) {
    const double kind = random_.unit();
    if (kind < kInsertShare) return insert_somewhere(order);
    if (kind < kInsertShare + kEraseShare || context_.keep_order) return erase_somewhere(order);
    return move_somewhere(order);
  }

  // Inserts the op that makes something the op at a random position uses, or an output at the end, at
  // most a little before it; an in-place op brings the ops that make what it overwrites. False if
  // there is nothing to insert.
  bool insert_somewhere(std::vector<OpId>& order) {
    const size_t use = random_.below(order.size() + 1);
    const auto used =
        use < order.size() ? context_.cost.reads(order[use]) : context_.cost.outputs();
    if (used.empty()) return false;
    std::vector<OpId> block;
    for (OrderCost::ValueIndex value = used[random_.below(used.size())];; --value) {
      if (context_.graph.storage(context_.cost.storage(value)).external()) return false;
      const OpId maker = context_.maker[static_cast<size_t>(value)];
      if (!context_.rerunnable[index(maker)]) return false;
      block.push_back(maker);
      if (context_.cost.version(value) == 0) break;  // else the version before is the number before
    }
    std::reverse(block.begin(), block.end());
    const size_t ahead =
        random_.chance(kRightBeforeUse) ? 0 : random_.below(std::min(use, kFarthestAhead) + 1);
    const auto place = order.begin() + static_cast<std::ptrdiff_t>(use - ahead);
    for (const OpId op : block) {
      // Before its first run it would be the first run itself.
      const bool fixed = context_.keep_order || keeps_mutual_order(context_.graph.op(op));
      if (fixed && std::find(order.begin(), place, op) == place) return false;
    }
    order.insert(place, block.begin(), block.end());
    return true;
  }

  bool erase_somewhere(std::vector<OpId>& order) {
    const std::vector<size_t> reruns = reruns_of(context_.graph, order);
    if (reruns.empty()) return false;
    const size_t rerun = reruns[random_.below(reruns.size())];
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(rerun));
    return true;
  }

  bool move_somewhere(std::vector<OpId>& order) {
    const size_t from = random_.below(order.size());
    const bool later = (random_.next() & 1) != 0;
    const size_t farthest = context_.passing.reach(order, from, later);
    if (farthest == 0) return false;
    const auto far = static_cast<std::ptrdiff_t>(1 + random_.below(farthest));
    const auto at = order.begin() + static_cast<std::ptrdiff_t>(from);
    if (later) {
      std::rotate(at, at + 1, at + far + 1);
    } else {
      std::rotate(at - far, at, at + 1);
    }
    return true;
  }

  SearchContext& context_;
  Random& random_;
};

}  // namespace

void anneal(SearchContext& context, FoundOrder& best, int64_t work, Effort& effort) {
  if (best.order.empty()) return;
  Effort own = effort.part(work);
  Annealing(context).run(best, own);
}

}  // namespace remat
