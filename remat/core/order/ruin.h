// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "remat/core/order/context.h"
#include "remat/core/order/repair.h"

namespace remat {

// Large-neighbourhood search: takes out a few re-runs of an order that fits (ruin), makes what is left
// fit again (repair.h), prunes it, and goes on from the result unless it is clearly slower. After a
// while without a better order it goes back to the best.
class Ruin {
 public:
  // `flatten`: before each round, shifts runs so that less lies close to the budget.
  Ruin(SearchContext& context, Effort& effort, bool flatten = true)
      : context_(context), effort_(effort), flatten_(flatten), repair_(context, effort) {}

  // Rounds until so much work is spent: one that has begun is finished, unless the effort is exhausted.
  // Demands that the best order fits; it will still. Calls `report` with every better order.
  void improve(FoundOrder& best, int64_t work,
               const std::function<void(const FoundOrder&)>& report = {});

 private:
  // The re-runs to take out, by position, and the op around whose re-run they lie.
  struct Choice {
    std::vector<bool> taken;
    OpId pivot{};
  };
  Choice choose(const std::vector<OpId>& order);
  void round(FoundOrder& current);

  SearchContext& context_;
  Effort& effort_;
  bool flatten_;
  Repair repair_;
};

}  // namespace remat
