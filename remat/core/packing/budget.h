// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace remat::detail {

// What the searches of one packing may still spend. Nodes are counted so that results repeat; the
// clock is a safety net.
struct SearchBudget {
  int64_t nodes_left = 0;
  std::chrono::steady_clock::time_point deadline;

  static SearchBudget of(int64_t nodes, double seconds);

  bool spent() const { return nodes_left <= 0; }
  // Takes `nodes` away; looks at the clock now and then, and is spent once the deadline is over.
  void pay(int64_t nodes);
};

// At most so many nodes of a budget, for one stage.
class BudgetShare {
 public:
  BudgetShare(const SearchBudget& budget, int64_t nodes)
      : budget_(budget), stop_at_(std::max<int64_t>(0, budget.nodes_left - nodes)) {}

  bool spent() const { return budget_.nodes_left <= stop_at_; }
  int64_t nodes_left() const { return std::max<int64_t>(0, budget_.nodes_left - stop_at_); }

 private:
  const SearchBudget& budget_;
  int64_t stop_at_;
};

}  // namespace remat::detail
