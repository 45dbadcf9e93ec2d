// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "remat/core/analysis/dependences.h"
#include "remat/core/analysis/operands.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/graph.h"

namespace remat {

// Every plan, seen at a few moments only: a relaxation that is small enough for thousands of ops.
//
// Take a few ops, the *cuts*, whose first runs come in a known order. They divide a plan into
// *windows*:
//
//     window 0        t1      window 1        t2      window 2
//     ────────────────┤├──────────────────────┤├─────────────────▶ plan
//     must have run:  ancestors of t1         ancestors of t2
//     cannot yet:     descendants of t1       descendants of t2
//
// For a given plan let run(o, w) = 1 if op o runs in window w at all, and keep(v, i) = 1 if a copy
// that holds value v is there right after cut i. Then, for every plan:
//  1. Ancestors of a cut run in a window before it, descendants in none, ops that must not be re-run
//     in one window only, an op that reads a version of an external never after its next change.
//  2. run(o, w) <= keep(v, w) + run(maker of v, w) for every input v of o: a value that o reads was
//     there when the window began or was made in it. (An update makes the next version from the one
//     before, which is one of its inputs.)
//  3. keep(v, i) <= keep(v, i-1) + run(maker of v, i-1), likewise. Outputs: "kept" at the end.
//  4. While a cut runs, everything kept beyond it, its operands, its results and its workspace are
//     there together: their bytes are within the budget. Copies of different values are different
//     copies. A result that takes the place of an operand shares its bytes only if that operand is
//     not kept.
//  5. While an op runs in a window, what was kept at both of its ends and is not made in it is there
//     too. (These rows are many and seldom matter: they are asked for one by one, as Watched.)
//  6. The plan takes at least the sum of time(o) * run(o, w).
// So the minimum of 6 under 1-5 is at most the time of every plan within the budget. What the model leaves
// out (memory between cuts, order within a window) can only lower it.
//
// The dual bound of HiGHS stands for that minimum, less a millionth of the step's time for the
// tolerances of its arithmetic, with the budget a millionth larger for the same reason.
class WindowModel {
 public:
  // A row of the fifth kind: for `op`, in the window that ends with the cut `until`.
  struct Watched {
    OpId op{};
    OpId until{};
    auto operator<=>(const Watched&) const = default;
  };

  // About plans in any order. Each cut must be an ancestor of the next. The graph must outlive the
  // model.
  WindowModel(const Graph& graph, const Dependences& dependences, std::span<const OpId> cuts,
              int64_t budget_bytes);
  // About plans that run ops for the first time in this order, a legal one. All ops before a cut
  // have run then, none after it has, and the cuts may be any ops in that order.
  WindowModel(const Graph& graph, std::span<const OpId> first_runs, std::span<const OpId> cuts,
              int64_t budget_bytes, std::span<const Watched> watched = {});

  struct Answer {
    bool infeasible = false;     // proven: no plan fits
    int64_t least_extra_ns = 0;  // proven: time beyond one run of every op
    // By window, in the order of the graph: ops that run there again, where first runs are known. A
    // proposal; nothing says that it fits between the cuts. Empty if none was found.
    std::vector<std::vector<OpId>> reruns;
  };
  // A bound of `enough_ns` more than one run of every op ends the work.
  Answer solve(Effort& effort, int64_t enough_ns = std::numeric_limits<int64_t>::max()) const;

 private:
  static constexpr int32_t kNo = -1;   // in place of a variable: always 0
  static constexpr int32_t kYes = -2;  // always 1

  WindowModel(const Graph& graph, std::span<const OpId> cuts, int64_t budget_bytes);
  void find_windows(const Dependences& dependences);
  void find_windows(std::span<const OpId> first_runs);
  void build(std::span<const Watched> watched);
  void end_runs();
  void add_runs();
  void add_keeps();
  void add_dependences();
  void demand_source(int32_t user, size_t value, size_t window);
  void add_memory(size_t cut);
  void add_watched(const Watched& watched);
  int32_t through(size_t value, size_t window);
  void add_sharing(size_t cut, const Op& op, double unit, std::vector<Summand>& memory);
  std::vector<std::vector<OpId>> reruns_of(const Solution& solution) const;

  int32_t& run(size_t op, size_t window) { return runs_[op * windows_ + window]; }
  int32_t& keep(size_t value, size_t cut) { return keeps_[value * windows_ + cut]; }

  const Graph& graph_;
  std::vector<OpId> cuts_;
  size_t windows_;
  double free_bytes_ = 0;  // budget less externals
  double time_unit_ns_ = 1;
  double certain_units_ = 0;  // part of the objective that every plan pays for first runs
  double margin_ns_ = 0;
  ValueNumbers values_;
  std::vector<size_t> first_from_, first_until_;  // by op: windows in which it may run first
  std::vector<size_t> last_;                      // by op: the last window in which it may run
  std::vector<int32_t> runs_;                     // by op and window: variable, kNo or kYes
  std::vector<int32_t> keeps_;  // by value and cut (0: before the step, where nothing is kept)
  // By value and window: 1 if it is there all through the window. Made when first asked for.
  std::unordered_map<size_t, int32_t> throughs_;
  LinearModel model_;
};

// Cuts are best where memory is most above the budget, all along the step: of a row of such excesses, the
// first largest in each of `count` even stretches. Positions in the row; fewer where it is shorter.
std::vector<size_t> largest_in_stretches(std::span<const int64_t> excess_bytes, size_t count);

}  // namespace remat
