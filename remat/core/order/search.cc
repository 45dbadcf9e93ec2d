// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "remat/core/error.h"

namespace remat {
namespace {

// A round that has become this much worse than where it started will hardly be pruned below it.
constexpr double kHopeless = 0.25;
constexpr double kTolerance = 0.1;
constexpr size_t kFarthestMove = 256;
constexpr int64_t kEvaluationsToPrepare = 5;  // as many take as long as to prepare OrderMoves
constexpr double kLeastHeat = 0.05;  // part of the budget
constexpr double kAnyWorse = std::numeric_limits<double>::infinity();

}  // namespace

OrderSearch::OrderSearch(const Graph& graph, const Settings& settings)
    : graph_(graph), settings_(settings), cost_(graph), passing_(graph), state_(settings.seed) {
  maker_.resize(cost_.value_count());
  for (size_t v = 0; v < cost_.value_count(); ++v) {
    const ValueIndex value = static_cast<ValueIndex>(v);
    const Storage& storage = graph.storage(cost_.storage(value));
    const int32_t version = cost_.version(value);
    if (version > 0) {
      maker_[v] = storage.changers[static_cast<size_t>(version) - 1];
    } else if (!storage.external()) {
      maker_[v] = *storage.creator;
    }
  }
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    rerunnable_.push_back(graph.rerunnable(static_cast<OpId>(i)));
    once_ns_ += op.time_ns;
  }
  output_.resize(cost_.value_count(), 0);
  for (const ValueIndex output : cost_.outputs()) output_[static_cast<size_t>(output)] = 1;
  in_block_.resize(graph.ops.size(), 0);
  seen_.resize(graph.ops.size(), 0);
}

uint64_t OrderSearch::random() {
  // splitmix64: small, fast, the same everywhere.
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

bool OrderSearch::exhausted() {
  if (cost_.work() >= settings_.limits.work) return true;
  // Asking for the time costs as much as a small order.
  constexpr int64_t kBetweenLooks = 100'000;
  if (settings_.limits.effort == nullptr || cost_.work() < next_look_) return false;
  next_look_ = cost_.work() + kBetweenLooks;
  if (!settings_.limits.effort->out_of_cpu()) return false;
  settings_.limits.work = 0;
  return true;
}

OrderCost::Result OrderSearch::evaluate(std::span<const OpId> order) {
  ++evaluations_;
  return cost_.evaluate(order, settings_.budget_bytes);
}

OrderSearch::Found OrderSearch::start(std::vector<OpId> order) {
  Found found;
  found.order = std::move(order);
  found.cost = evaluate(found.order);
  REMAT_ASSERT(found.cost.legal);
  found.fits = found.cost.overflow == 0;
  return found;
}

std::vector<size_t> OrderSearch::reruns_of(const std::vector<OpId>& order) {
  ++stamp_;
  std::vector<size_t> reruns;
  for (size_t i = 0; i < order.size(); ++i) {
    int32_t& seen = seen_[index(order[i])];
    if (seen == stamp_) reruns.push_back(i);
    seen = stamp_;
  }
  return reruns;
}

// Takes out the re-runs none of whose results is used before it is made again, and then those that
// only served them: one pass from the end finds both.
void OrderSearch::erase_dead(std::vector<OpId>& order) {
  const std::vector<size_t> reruns = reruns_of(order);
  if (reruns.empty()) return;
  needed_.assign(cost_.value_count(), 0);
  const auto at = [](ValueIndex value) { return static_cast<size_t>(value); };
  for (const ValueIndex output : cost_.outputs()) needed_[at(output)] = 1;
  size_t rerun = reruns.size();
  size_t kept = order.size();
  for (size_t i = order.size(); i-- > 0;) {
    const OpId op = order[i];
    const bool is_rerun = rerun > 0 && reruns[rerun - 1] == i;
    if (is_rerun) --rerun;
    bool useful = !is_rerun;
    for (const ValueIndex value : cost_.creates(op)) useful = useful || needed_[at(value)] > 0;
    for (const OrderCost::Update& update : cost_.updates(op)) {
      useful = useful || needed_[at(update.after)] > 0;
    }
    if (!useful) continue;
    for (const ValueIndex value : cost_.creates(op)) {
      needed_[at(value)] = std::max(0, needed_[at(value)] - 1);
    }
    for (const OrderCost::Update& update : cost_.updates(op)) {
      needed_[at(update.after)] = std::max(0, needed_[at(update.after)] - 1);
      ++needed_[at(update.before)];
    }
    for (const ValueIndex value : cost_.reads(op)) {
      needed_[at(value)] = std::max(1, needed_[at(value)]);
    }
    order[--kept] = op;
  }
  order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept));
  cost_.add_work(static_cast<int64_t>(order.size()) * 4);
}

void OrderSearch::prune(Found& found, size_t most) {
  std::vector<size_t> reruns = reruns_of(found.order);
  std::stable_sort(reruns.begin(), reruns.end(), [&](size_t a, size_t b) {
    return graph_.op(found.order[a]).time_ns > graph_.op(found.order[b]).time_ns;
  });
  if (reruns.size() > most) {
    // The same expensive ones every time would leave the others untried for ever.
    for (size_t i = 0; i < most; ++i) {
      std::swap(reruns[i], reruns[i + random_below(reruns.size() - i)]);
    }
    reruns.resize(most);
  }
  std::vector<bool> erased(found.order.size(), false);
  std::vector<OpId> trial;
  bool changed = false;
  for (const size_t rerun : reruns) {
    if (exhausted()) break;
    erased[rerun] = true;
    trial.clear();
    for (size_t i = 0; i < found.order.size(); ++i) {
      if (!erased[i]) trial.push_back(found.order[i]);
    }
    const OrderCost::Result cost = evaluate(trial);
    if (cost.legal && cost.overflow == 0) {
      found.cost = cost;
      changed = true;
    } else {
      erased[rerun] = false;
    }
  }
  if (!changed) return;
  trial.clear();
  for (size_t i = 0; i < found.order.size(); ++i) {
    if (!erased[i]) trial.push_back(found.order[i]);
  }
  erase_dead(trial);
  found = start(std::move(trial));
}

std::optional<OrderSearch::Move> OrderSearch::random_move(const OrderMoves& moves) {
  constexpr int64_t kWorkPerMove = 24;  // and one for each place
  const size_t from = random_below(moves.size());
  const bool later = (random() & 1) != 0;
  const size_t farthest = moves.reach(from, later);
  // Counted though nothing was moved: in a chain no op can move, and trying must end.
  cost_.add_work(kWorkPerMove);
  if (farthest == 0) return std::nullopt;
  const size_t distance = 1 + random_below(std::min(farthest, 1 + random_below(kFarthestMove)));
  cost_.add_work(static_cast<int64_t>(distance));
  return Move{from, later ? from + distance : from - distance};
}

// Simulated annealing on the overflow: the temperature falls from a part of the mean excess to
// nothing.
void OrderSearch::reorder(Found& found, int64_t work, double heat) {
  if (settings_.keep_order || found.fits) return;
  OrderMoves moves(graph_, cost_, passing_, found.order, settings_.budget_bytes);
  const int64_t begin = cost_.work();
  cost_.add_work(kEvaluationsToPrepare * OrderCost::kWorkPerOp * static_cast<int64_t>(moves.size()));
  // Where only a few bytes are too many, a move still changes as many as values have.
  const double hot =
      heat * std::max(moves.overflow(), kLeastHeat * static_cast<double>(settings_.budget_bytes));
  double least = moves.overflow();
  bool there = false;  // at the least, and found.order does not have it yet
  while (least > 0 && !exhausted()) {
    const double cooling =
        1.0 - static_cast<double>(cost_.work() - begin) / static_cast<double>(std::max<int64_t>(1, work));
    if (cooling <= 0) break;
    const std::optional<Move> move = random_move(moves);
    if (!move) continue;
    const double tolerance = -std::log(1e-12 + random_unit()) * hot * cooling * cooling;
    if (!moves.try_move(move->from, move->to, tolerance)) continue;
    if (moves.overflow() < least) {
      least = moves.overflow();
      there = true;
    } else if (there && moves.overflow() > least) {
      // Only now is it worth a copy: most improvements are followed by another one.
      moves.try_move(move->to, move->from, kAnyWorse);
      found.order = moves.order();
      moves.try_move(move->from, move->to, kAnyWorse);
      there = false;
    }
  }
  found = start(there ? moves.order() : std::move(found.order));
}

void OrderSearch::flatten(Found& found, int64_t line, int64_t tries) {
  OrderMoves moves(graph_, cost_, passing_, found.order, line);
  for (int64_t i = 0; i < tries && !exhausted(); ++i) {
    const std::optional<Move> move = random_move(moves);
    if (move) moves.try_move(move->from, move->to, 0, found.cost.peak_bytes);
  }
  found = start(moves.order());
}

// One ruin and repair of the current order. The result becomes the current one unless it is slower by
// more than a random share of what recomputation costs.
void OrderSearch::round(Found& found) {
  std::vector<size_t> reruns = reruns_of(found.order);
  if (reruns.empty()) {  // nothing to gain: every op runs once
    cost_.add_work(settings_.limits.work);
    return;
  }
  if (!settings_.keep_order) {
    // Orders that cost the same are as good a place to start from, and one with more room is better.
    const double line = (0.8 + 0.2 * random_unit()) * static_cast<double>(settings_.budget_bytes);
    flatten(found, static_cast<int64_t>(line), static_cast<int64_t>(found.order.size()));
    reruns = reruns_of(found.order);
  }
  size_t count = 1;
  while (count < reruns.size() && count < 12 && random_unit() < 0.6) ++count;
  const size_t first = random_below(reruns.size());
  const double kind = random_unit();
  std::vector<bool> erased(found.order.size(), false);
  const OpId pivot = found.order[reruns[first]];
  if (kind < 0.4) {  // neighbours in time
    for (size_t k = 0; k < count; ++k) erased[reruns[(first + k) % reruns.size()]] = true;
  } else if (kind < 0.7) {  // neighbours in the network
    const int64_t width = static_cast<int64_t>(random_below(12));
    for (const size_t rerun : reruns) {
      const int64_t apart =
          static_cast<int64_t>(index(found.order[rerun])) - static_cast<int64_t>(index(pivot));
      if (std::abs(apart) <= width) erased[rerun] = true;
    }
  } else {  // anywhere
    erased[reruns[first]] = true;
    for (size_t k = 1; k < count; ++k) erased[reruns[random_below(reruns.size())]] = true;
  }
  tabu_.clear();
  if (random_unit() < 0.7) tabu_.push_back(pivot);

  std::vector<OpId> order;
  for (size_t i = 0; i < found.order.size(); ++i) {
    if (!erased[i]) order.push_back(found.order[i]);
  }
  erase_dead(order);
  Found trial;
  trial.order = std::move(order);
  trial.cost = evaluate(trial.order);
  if (!trial.cost.legal) return;
  trial.fits = trial.cost.overflow == 0;
  if (!trial.fits && !settings_.keep_order && random_unit() < 0.3) {
    reorder(trial, 20 * OrderCost::kWorkPerOp * static_cast<int64_t>(trial.order.size()));
  }
  const int64_t ruined = found.cost.time_ns - trial.cost.time_ns;
  const int64_t hopeless_ns =
      found.cost.time_ns + static_cast<int64_t>(kHopeless * static_cast<double>(ruined));
  while (!trial.fits && trial.cost.time_ns <= hopeless_ns && repair_step(trial)) {
  }
  tabu_.clear();
  if (!trial.fits) return;
  prune(trial, 40);
  const double overhead = static_cast<double>(found.cost.time_ns - once_ns_);
  const double tolerance = kTolerance * random_unit() * random_unit() * overhead;
  if (static_cast<double>(trial.cost.time_ns - found.cost.time_ns) <= tolerance) {
    found = std::move(trial);
  }
}

}  // namespace remat
