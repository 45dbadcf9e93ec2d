// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/ruin.h"

#include <cstdlib>
#include <utility>

#include "remat/core/order/reorder.h"
#include "remat/core/order/reruns.h"

namespace remat {
namespace {

constexpr int64_t kPatience = 60;  // rounds without a better order before going back to the best

// How many re-runs are taken out: one more with this probability, up to a limit. Few can be repaired
// better than before; many now and then leave a local minimum.
constexpr double kOneMore = 0.6;
constexpr size_t kMostTaken = 12;
// Which: shares of the three kinds.
constexpr double kNeighboursInTime = 0.4;
constexpr double kNeighboursInNetwork = 0.3;  // the rest: anywhere
constexpr size_t kNetworkWidth = 12;          // ops, to either side, less one
// How often the width is so many times larger: some improvements need a large part of the plan changed at once.
constexpr double kWide = 0.2;
constexpr size_t kTimesAsWide = 4;
// How often the first one taken out must not be put back at once.
constexpr double kTabu = 0.7;

// Before: shifts towards an order with less above a random line, in parts of the budget.
constexpr double kLowestLine = 0.8;
constexpr double kLineRange = 0.2;
// After: how often runs are reordered before anything is inserted, and for how many orders' work. A graph of
// a few dozen ops has few orders, and more of its improvements need another one.
constexpr double kReorder = 0.3;
constexpr double kReorderFew = 0.6;
constexpr size_t kFewOps = 64;
constexpr int64_t kReorderOrders = 20;
// A repair that has put back this much more time than was taken out will hardly be pruned below it.
constexpr double kHopeless = 0.25;
constexpr size_t kMostPruned = 40;
// A slower result is accepted within a random part of this share of the time of re-runs.
constexpr double kTolerance = 0.1;

}  // namespace

void Ruin::improve(FoundOrder& best, int64_t work,
                   const std::function<void(const FoundOrder&)>& report) {
  const int64_t until = effort_.spent() + work;
  FoundOrder current = best;
  for (int64_t since_best = 0; effort_.spent() < until && !effort_.exhausted(); ++since_best) {
    if (reruns_of(context_.graph, current.order).empty()) return;  // there is nothing to take out
    round(current);
    if (current.cost.time_ns < best.cost.time_ns) {
      best = current;
      since_best = 0;
      if (report) report(best);
    } else if (since_best > kPatience) {
      current = best;
      since_best = 0;
    }
  }
}

Ruin::Choice Ruin::choose(const std::vector<OpId>& order) {
  Random& random = context_.random;
  const std::vector<size_t> reruns = reruns_of(context_.graph, order);
  size_t count = 1;
  while (count < reruns.size() && count < kMostTaken && random.chance(kOneMore)) ++count;
  const size_t first = random.below(reruns.size());
  Choice choice{.taken = std::vector<bool>(order.size(), false), .pivot = order[reruns[first]]};
  const double kind = random.unit();
  if (kind < kNeighboursInTime) {
    for (size_t k = 0; k < count; ++k) choice.taken[reruns[(first + k) % reruns.size()]] = true;
  } else if (kind < kNeighboursInTime + kNeighboursInNetwork) {
    const size_t times = random.chance(kWide) ? kTimesAsWide : 1;
    const int64_t width = static_cast<int64_t>(random.below(times * kNetworkWidth));
    for (const size_t rerun : reruns) {
      const int64_t apart =
          static_cast<int64_t>(index(order[rerun])) - static_cast<int64_t>(index(choice.pivot));
      if (std::abs(apart) <= width) choice.taken[rerun] = true;
    }
  } else {
    choice.taken[reruns[first]] = true;
    for (size_t k = 1; k < count; ++k) choice.taken[reruns[random.below(reruns.size())]] = true;
  }
  return choice;
}

void Ruin::round(FoundOrder& current) {
  Random& random = context_.random;
  if (flatten_ && !context_.keep_order) {
    // Orders that cost the same are as good a place to start from, and one with more room is better.
    const double line =
        (kLowestLine + kLineRange * random.unit()) * static_cast<double>(context_.budget_bytes);
    FoundOrder flatter = current;
    flatten(context_, flatter, static_cast<int64_t>(line),
            static_cast<int64_t>(current.order.size()), effort_);
    context_.retime(flatter, effort_);
    // Where there are transfers, an op may have to wait now.
    if (flatter.cost.time_ns <= current.cost.time_ns) current = std::move(flatter);
  }
  const Choice choice = choose(current.order);
  const RepairOptions step{
      .tabu = random.chance(kTabu) ? std::optional(choice.pivot) : std::nullopt, .noisy = true};

  std::vector<OpId> order = without(context_.graph, current.order, choice.taken);
  erase_dead(context_.graph, context_.cost, order, effort_);
  const OrderCost::Result cost = context_.evaluate(order, effort_);
  if (!cost.legal) return;
  FoundOrder trial = FoundOrder::of(std::move(order), cost);
  const double reordered = context_.graph.ops.size() <= kFewOps ? kReorderFew : kReorder;
  if (!trial.fits && !context_.keep_order && random.chance(reordered)) {
    reorder(context_, trial,
            kReorderOrders * OrderCost::kWorkPerOp * static_cast<int64_t>(trial.order.size()),
            effort_);
  }
  const int64_t taken_ns = current.cost.time_ns - trial.cost.time_ns;
  const int64_t hopeless_ns =
      current.cost.time_ns + static_cast<int64_t>(kHopeless * static_cast<double>(taken_ns));
  while (!trial.fits && trial.cost.time_ns <= hopeless_ns && repair_.step(trial, step)) {
  }
  if (!trial.fits) return;
  prune(context_, trial, kMostPruned, effort_);
  context_.retime(trial, effort_);
  const double overhead_ns = static_cast<double>(current.cost.time_ns - context_.once_ns);
  const double tolerance_ns = kTolerance * random.unit() * random.unit() * overhead_ns;
  if (static_cast<double>(trial.cost.time_ns - current.cost.time_ns) <= tolerance_ns) {
    current = std::move(trial);
  }
}

}  // namespace remat
