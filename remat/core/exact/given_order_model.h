// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/analysis/operands.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/graph.h"

namespace remat {

// The plans that run ops for the first time in the given order, as a mixed-integer model of the
// memory model of simulate, to the byte. Re-runs stand in *blocks*: block p, right before op p,
// holds each earlier op at most once, in the order of the graph; block n comes after the last op
// and serves the outputs. This makes a fixed row of *slots*, each an op that may run there:
//
//     slots   0 │ 0' 1 │ 0' 1' 2 │ 0' 1' 2' 3 │ ...      o' a re-run, o the op itself
//
// Variables: r(slot) = 1 if the op of the slot runs; x(v, g) = copies of value v in the gap g
// between two slots that touch v; y(slot, pair) = 1 if a result takes the place of a source. Rows,
// for a slot that touches v with x before it and x' after it:
//
//     read       r <= x                    x' <= x                     (a copy may be forgotten)
//     create                               x' <= x + r
//     update     r <= x(v)                 x'(v) <= x(v) - r,  x'(v+1) <= x(v+1) + r
//     reuse      y <= r,  y = 1 only if x'(source) = 0
//     memory     sum of x * bytes before the slot + r * (results + workspace) - y * shared <= budget
//
// Once r and y are whole, the least x is: it counts the later uses of copies, as OrderCost does.
// Left out are slots that cannot help: of ops that must not or cannot be re-run there (an external
// they read has changed), and of ops none of whose results leads to something needed later on.
class GivenOrderModel {
 public:
  // Stops building when the model exceeds `max_terms`; too_large() then says so and the rest is not
  // to be called.
  GivenOrderModel(const Graph& graph, int64_t budget_bytes, int64_t max_terms);

  bool too_large() const { return too_large_; }
  // The slots that an order takes, as a start for the solver; none if the order is not in the
  // model.
  std::optional<std::vector<Setting>> settings_of(std::span<const OpId> order) const;
  Solution solve(std::span<const Setting> start, Effort& effort) const;
  // The order that a solution stands for.
  std::vector<OpId> order_of(const Solution& solution) const;

 private:
  static constexpr int32_t kAlways = -1;  // in place of a variable: the op itself, which must run
  static constexpr int32_t kNone = -1;    // in place of a variable: no copy can be there

  struct Slot {
    OpId op{};
    size_t block = 0;
    int32_t runs = kAlways;
  };

  bool internal(const Value& value) const { return !graph_.storage(value.storage).external(); }

  void choose_slots();
  bool may_run_again(OpId op, size_t block) const;
  void note_last_uses();

  void add_slot(size_t slot);
  bool can_run(const Op& op) const;
  void add_memory(const Op& op, int32_t runs, std::vector<Term> shared);
  std::vector<Term> add_sharing(const Op& op, int32_t runs);
  void add_flow(size_t slot, const Op& op, int32_t runs);
  void flow(size_t slot, size_t value, int32_t runs, int made);
  void add_outputs();

  const Graph& graph_;
  double free_bytes_ = 0;
  double bytes_unit_ = 1;
  double time_unit_ns_ = 1;
  bool too_large_ = false;
  ValueNumbers values_;
  std::vector<Slot> slots_;
  std::vector<size_t> last_use_;  // by value: the last slot that may need it
  std::vector<int32_t> present_;  // by value: the variable of the gap at work, or kNone
  // Sharings of the slot at work: the source and its y.
  std::vector<std::pair<size_t, int32_t>> taken_;
  LinearModel model_;
};

}  // namespace remat
