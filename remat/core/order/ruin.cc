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
// How often the first one taken out must not be put back at once.
constexpr double kTabu = 0.7;

// Before: moves towards an order with less above a random line, in parts of the budget.
constexpr double kLowestLine = 0.8;
constexpr double kLineRange = 0.2;
// After: how often runs are reordered before anything is inserted, and for how many orders' work.
constexpr double kReorder = 0.3;
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
    if (current.order.size() == context_.graph.ops.size()) return;  // every op runs once
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
    const int64_t width = static_cast<int64_t>(random.below(kNetworkWidth));
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
    flatten(context_, current, static_cast<int64_t>(line),
            static_cast<int64_t>(current.order.size()), effort_);
  }
  const Choice choice = choose(current.order);
  const RepairOptions step{
      .tabu = random.chance(kTabu) ? std::optional(choice.pivot) : std::nullopt, .noisy = true};

  FoundOrder trial;
  trial.order = without(current.order, choice.taken);
  erase_dead(context_, trial.order, effort_);
  trial.cost = context_.evaluate(trial.order, effort_);
  if (!trial.cost.legal) return;
  trial.fits = trial.cost.overflow == 0;
  if (!trial.fits && !context_.keep_order && random.chance(kReorder)) {
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
  const double overhead_ns = static_cast<double>(current.cost.time_ns - context_.once_ns);
  const double tolerance_ns = kTolerance * random.unit() * random.unit() * overhead_ns;
  if (static_cast<double>(trial.cost.time_ns - current.cost.time_ns) <= tolerance_ns) {
    current = std::move(trial);
  }
}

}  // namespace remat
