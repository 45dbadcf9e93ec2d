// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/effort.h"
#include "remat/core/graph.h"
#include "remat/core/order/cost.h"
#include "remat/core/order/passing.h"

namespace remat {

// Local search over orders of ops, with the exact cost of each. An order is changed by
//
//     insert   make a value again right before a use, with what that needs on the way       repair.h
//              or pack it, or offload it, while it is idle (moves.h)
//     erase    drop a re-run: its users take the value from where it was made before        reruns.h
//     shift    run an op earlier or later                                                  reorder.h
//     retime   begin and end transfers so that no op waits for them                      transfers.h
//
// and every order that comes out has been evaluated as a whole, so that nothing is estimated but
// which changes are worth a try. ruin.h combines the four.

// An order and what it costs.
struct FoundOrder {
  std::vector<OpId> order;
  OrderCost::Result cost;
  bool fits = false;  // into the budget

  static FoundOrder of(std::vector<OpId> order, const OrderCost::Result& cost) {
    return {.order = std::move(order), .cost = cost, .fits = cost.overflow == 0};
  }
};

// The one that fits; of two, the faster; of none, the one with the lower peak.
bool better(const FoundOrder& a, const FoundOrder& b);

// splitmix64: small, fast, the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  size_t below(size_t count) { return static_cast<size_t>(next() % count); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // in [0, 1)
  bool chance(double probability) { return unit() < probability; }

 private:
  uint64_t state_;
};

struct SearchSettings {
  int64_t budget_bytes = 0;
  bool keep_order = false;  // first runs stay in the order of the graph
  uint64_t seed = 0;
  bool rerun = true;  // ops, ...
  bool pack = true;   // ... and which moves there are
  bool offload = true;
  bool insert_many = true;  // in large graphs, many insertions at a time
  // What a nanosecond of a transfer counts for, where a search chooses between it and others: the channel
  // cannot carry everything.
  double channel_price = 0;
};

// The moves of a value, and the values that stand for its packed and its offloaded form.
struct MovesOfValue {
  std::optional<OpId> pack, unpack, offload, prefetch;
  OrderCost::ValueIndex packed = -1, away = -1;
  struct Reader {
    OpId op{};
    OpId read_packed{};
  };
  std::vector<Reader> readers;
};

// What all of them share: the graph and its cost, what is asked for, and the random numbers.
struct SearchContext {
  SearchContext(const Graph& graph, const SearchSettings& settings);

  const Graph& graph;
  int64_t budget_bytes;
  bool keep_order;
  bool insert_many;
  Random random;
  OrderCost cost;
  Passing passing;
  std::vector<OpId> maker;          // by value: the op that makes it; unset for a given external
  std::vector<uint8_t> output;      // by value
  std::vector<uint8_t> rerunnable;  // by op; none, where only moves are asked for
  std::vector<MovesOfValue> moves;  // by value, those that are asked for; empty where there are none
  double channel_price;
  int64_t once_ns;                  // the time of every op once
  int64_t evaluations = 0;

  OrderCost::Result evaluate(std::span<const OpId> order, Effort& effort);
  // Evaluates an order as a starting point. The order must be legal.
  FoundOrder start(std::vector<OpId> order, Effort& effort);
  // Begins and ends the order's transfers at other places, if that saves waiting and needs no more.
  void retime(FoundOrder& found, Effort& effort);

 private:
  void find_moves(const SearchSettings& settings);
};

// While it lives, the search is for another budget.
class OtherBudget {
 public:
  OtherBudget(SearchContext& context, int64_t budget_bytes)
      : context_(context), before_bytes_(std::exchange(context.budget_bytes, budget_bytes)) {}
  ~OtherBudget() { context_.budget_bytes = before_bytes_; }
  OtherBudget(const OtherBudget&) = delete;
  OtherBudget& operator=(const OtherBudget&) = delete;

 private:
  SearchContext& context_;
  int64_t before_bytes_;
};

}  // namespace remat
