// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/effort.h"
#include "remat/core/graph.h"
#include "remat/core/order/cost.h"
#include "remat/core/order/moves.h"
#include "remat/core/order/timeline.h"

namespace remat {

// Local search over orders of ops, with the exact cost of each. An order is changed by
//
//   insert   make a value again right before a use, with whatever that needs on the way
//   erase    drop one re-run: its users take the value from where it was made before
//   move     run an op earlier or later
//
// and every order that comes out has been evaluated as a whole, so nothing is estimated but which
// changes are worth a try.

struct SearchLimits {
  int64_t work = 0;  // in OrderCost's units; the same on every machine
  const Effort* effort = nullptr;  // the end of CPU time, if any
};

inline int64_t work_of(const Effort& effort) {
  return static_cast<int64_t>(static_cast<double>(effort.left_ns()) / OrderCost::kNsPerWork);
}

class OrderSearch {
 public:
  struct Settings {
    int64_t budget_bytes = 0;
    bool keep_order = false;
    uint64_t seed = 0;
    SearchLimits limits;
  };

  OrderSearch(const Graph& graph, const Settings& settings);

  struct Found {
    std::vector<OpId> order;
    OrderCost::Result cost;
    bool fits = false;
  };

  // Evaluates an order as a starting point. The order must be legal.
  Found start(std::vector<OpId> order);

  // Runs ops in another order, at no cost in time, as long as that lowers the overflow, for so much
  // work. `heat` is the first temperature, in parts of the overflow: more of it leaves deeper valleys.
  static constexpr double kMild = 0.02;
  void reorder(Found& found, int64_t work, double heat = kMild);

  // Runs ops in another order, at no cost in time, so that less lies above `line` bytes, summed over
  // positions. The peak does not rise.
  void flatten(Found& found, int64_t line, int64_t tries);

  // Inserts re-runs by the best ratio of overflow removed to time spent until the order fits or
  // nothing helps any more. Returns whether it fits.
  bool repair(Found& found);

  // Erases re-runs that are not needed to fit, the most expensive first. `most` bounds the tries.
  void prune(Found& found, size_t most);

  // Simulated annealing for so much work. The best that fits is kept, so an order that fits can only
  // get faster; one that does not may come to fit.
  void anneal(Found& best, int64_t work);

  // Ruin and repair until the work is done, or the limits are reached, away from the best and back to
  // it again. Demands that it fits; it will still. Calls `report` with every better order.
  template <typename Report>
  void improve(Found& best, int64_t until_work, const Report& report) {
    Found current = best;
    noisy_ = true;
    for (int64_t since_best = 0; work() < until_work && !exhausted(); ++since_best) {
      round(current);
      if (current.cost.time_ns < best.cost.time_ns) {
        best = current;
        since_best = 0;
        report(best);
      } else if (since_best > kPatience) {
        current = best;
        since_best = 0;
      }
    }
    noisy_ = false;
  }

  bool exhausted();
  int64_t evaluations() const { return evaluations_; }
  void set_budget(int64_t budget_bytes) { settings_.budget_bytes = budget_bytes; }
  void set_work_limit(int64_t work) { settings_.limits.work = work; }
  int64_t work() const { return cost_.work(); }

 private:
  static constexpr int64_t kPatience = 60;  // rounds without a better order before going back
  using ValueIndex = OrderCost::ValueIndex;

  // A value that lies idle across a position, and a place where it could be made again.
  struct Spot {
    ValueIndex target = 0;
    size_t before = 0;  // position
    double gain = 0;    // estimate of the overflow removed
    double most_ratio = 0;  // of that to the time of the op that makes it
  };
  // The same with the block that would make it again.
  struct Insertion {
    ValueIndex target = 0;
    size_t before = 0;  // position
    std::vector<OpId> block;
    int64_t time_ns = 0;
    double gain = 0;  // estimate of the overflow removed
  };

  // What is needed to make a value again and is no longer there at that place could have stayed.
  enum class Staying : uint8_t {
    none,           // everything is made again
    where_it_fits,  // what stays exceeds the budget nowhere
    if_smaller,     // or is less, together, than the value that is forgotten
  };

  OrderCost::Result evaluate(std::span<const OpId> order);
  void round(Found& found);

  // In repair.cc.
  void look_at(Found& found);
  bool repair_many(Found& found);
  bool repair_step(Found& found);
  std::vector<Spot> spots_at(size_t position);
  std::vector<Insertion> insertions_at(size_t position, size_t most);
  void find_places(ValueIndex value, size_t position, size_t use);
  bool collect_block(Staying staying, double to_beat, Insertion& insertion);
  bool there(ValueIndex value, size_t before) const;
  bool fits_longer(ValueIndex value, size_t before) const;
  int64_t most_resident(size_t from, size_t before) const;
  void sum_excess();
  std::vector<OpId> with(const std::vector<OpId>& order,
                         std::span<const Insertion> insertions) const;
  bool is_tabu(const Insertion& insertion) const;

  // In anneal.cc.
  double energy(const OrderCost::Result& cost, double weight) const;
  bool insert_somewhere(std::vector<OpId>& order);
  bool erase_somewhere(std::vector<OpId>& order);
  bool move_somewhere(std::vector<OpId>& order);

  std::vector<size_t> reruns_of(const std::vector<OpId>& order);
  void erase_dead(std::vector<OpId>& order);
  struct Move {
    size_t from;
    size_t to;
  };
  std::optional<Move> random_move(const OrderMoves& moves);

  uint64_t random();
  size_t random_below(size_t count) { return static_cast<size_t>(random() % count); }
  double random_unit() { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

  // In rounds the second best is now and then the way to something better.
  double noise() { return noisy_ ? 0.7 + 0.6 * random_unit() : 1.0; }

  const Graph& graph_;
  Settings settings_;
  OrderCost cost_;
  Passing passing_;
  OrderTimeline timeline_;
  std::vector<int64_t> resident_;      // by position of the order under repair
  std::vector<double> excess_before_;  // prefix sums of bytes above the budget
  std::vector<int32_t> over_before_;   // prefix counts of positions above the budget
  std::vector<int64_t> most_in_stretch_;  // of resident_
  std::vector<size_t> ends_of_excess_;  // positions where the overflow pauses
  std::vector<size_t> places_;          // where the value at work could be made again
  std::vector<OpId> maker_;            // by value: the op that makes it
  std::vector<uint8_t> output_;        // by value
  std::vector<uint8_t> rerunnable_;    // by op
  // Scratch.
  std::vector<int32_t> in_block_;  // by op: stamp
  std::vector<int32_t> seen_;      // by op: stamp
  std::vector<int32_t> needed_;    // by value
  std::vector<std::pair<ValueIndex, bool>> wanted_;
  int32_t stamp_ = 0;
  std::vector<OpId> tabu_;
  uint64_t state_ = 0;
  int64_t once_ns_ = 0;  // the time of every op once
  int64_t evaluations_ = 0;
  int64_t next_look_ = 0;  // work at which to look at the CPU time again
  bool noisy_ = false;
};

}  // namespace remat
