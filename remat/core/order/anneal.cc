// SPDX-License-Identifier: Apache-2.0

// The annealing half of OrderSearch, for graphs small enough to look at many orders: moves, inserts
// and erases one op at a time, through orders that do not fit, on
//
//     energy = overhead in % + weight · overflow / budget
//
// where the weight grows as the temperature falls. What greedy repair cannot see is found here: an op
// run elsewhere *and* another one re-run. The best order that fits is kept.

#include <algorithm>
#include <cmath>
#include <utility>

#include "remat/core/mutual_order.h"
#include "remat/core/order/search.h"

namespace remat {
namespace {

constexpr double kHot = 1.0;  // percent of the step's time
constexpr double kCold = 0.01;
constexpr double kLightWeight = 3;
constexpr double kHeavyWeight = 300;
constexpr size_t kFarthestInsertion = 32;

}  // namespace

double OrderSearch::energy(const OrderCost::Result& cost, double weight) const {
  return 100.0 * static_cast<double>(cost.time_ns - once_ns_) / static_cast<double>(once_ns_ + 1) +
         weight * cost.overflow / (static_cast<double>(settings_.budget_bytes) + 1);
}

// Inserts the op that makes something the op at a random position uses, or an output at the end, at
// most a little before it; an in-place op brings the ops that make what it overwrites. False if there is nothing to insert.
bool OrderSearch::insert_somewhere(std::vector<OpId>& order) {
  const size_t use = random_below(order.size() + 1);
  const auto reads = use < order.size() ? cost_.reads(order[use]) : cost_.outputs();
  if (reads.empty()) return false;
  ValueIndex value = reads[random_below(reads.size())];
  std::vector<OpId> block;
  while (true) {
    const Storage& storage = graph_.storage(cost_.storage(value));
    if (storage.external()) return false;
    const OpId maker = maker_[static_cast<size_t>(value)];
    if (!rerunnable_[index(maker)]) return false;
    block.push_back(maker);
    if (cost_.version(value) == 0) break;
    --value;  // versions of a storage are numbered in a row
  }
  std::reverse(block.begin(), block.end());
  const size_t ahead = random_unit() < 0.5 ? 0 : random_below(std::min(use, kFarthestInsertion) + 1);
  const auto place = order.begin() + static_cast<std::ptrdiff_t>(use - ahead);
  for (const OpId op : block) {
    // Before its first run it would be the first run itself.
    const bool fixed = settings_.keep_order || keep_mutual_order(graph_.op(op), graph_.op(op));
    if (fixed && std::find(order.begin(), place, op) == place) return false;
  }
  order.insert(place, block.begin(), block.end());
  return true;
}

bool OrderSearch::erase_somewhere(std::vector<OpId>& order) {
  const std::vector<size_t> reruns = reruns_of(order);
  if (reruns.empty()) return false;
  const size_t rerun = reruns[random_below(reruns.size())];
  order.erase(order.begin() + static_cast<std::ptrdiff_t>(rerun));
  return true;
}

bool OrderSearch::move_somewhere(std::vector<OpId>& order) {
  const size_t from = random_below(order.size());
  const bool later = (random() & 1) != 0;
  const size_t farthest = passing_.reach(order, from, later);
  if (farthest == 0) return false;
  const size_t distance = 1 + random_below(farthest);
  const auto at = order.begin() + static_cast<std::ptrdiff_t>(from);
  const auto far = static_cast<std::ptrdiff_t>(distance);
  if (later) {
    std::rotate(at, at + 1, at + far + 1);
  } else {
    std::rotate(at - far, at, at + 1);
  }
  return true;
}

void OrderSearch::anneal(Found& best, int64_t work) {
  if (best.order.empty()) return;
  const int64_t from = cost_.work();
  const double total = static_cast<double>(std::max<int64_t>(1, work));
  Found current = best;
  std::vector<OpId> trial;
  while (!exhausted()) {
    const double progress = static_cast<double>(cost_.work() - from) / total;
    if (progress >= 1) break;
    const double temperature = kHot * std::pow(kCold / kHot, progress);
    const double weight = kLightWeight * std::pow(kHeavyWeight / kLightWeight, progress);
    trial = current.order;
    const double kind = random_unit();
    const bool changed = kind < 0.3    ? insert_somewhere(trial)
                         : kind < 0.5 || settings_.keep_order ? erase_somewhere(trial)
                                       : move_somewhere(trial);
    cost_.add_work(static_cast<int64_t>(trial.size()));
    if (!changed) continue;
    const OrderCost::Result cost = evaluate(trial);
    if (!cost.legal) continue;
    const double worse = energy(cost, weight) - energy(current.cost, weight);
    if (worse > -std::log(1e-12 + random_unit()) * temperature) continue;
    current.order.swap(trial);
    current.cost = cost;
    current.fits = cost.overflow == 0;
    if (current.fits && (!best.fits || current.cost.time_ns < best.cost.time_ns)) best = current;
  }
}

}  // namespace remat
