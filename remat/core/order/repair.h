// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "remat/core/order/context.h"
#include "remat/core/order/insertions.h"

namespace remat {

struct RepairOptions {
  std::optional<OpId> tabu = {};  // is not run again
  bool noisy = false;  // ratios are changed a little at random, so that repeated repairs differ
};

// From an order that needs too much to one that fits, by inserting re-runs. At the position where most
// is resident, what each insertion removes of the overflow is estimated for all and computed for the
// most promising; the best ratio to the time it costs wins.
class Repair {
 public:
  Repair(SearchContext& context, Effort& effort)
      : context_(context), effort_(effort), finder_(context) {}

  // Inserts until the order fits or nothing helps any more. Returns whether it fits.
  bool run(FoundOrder& found);

  // One insertion. False if none was found.
  bool step(FoundOrder& found, const RepairOptions& options = {});

 private:
  void look_at(FoundOrder& found);
  bool insert_many(FoundOrder& found);
  std::optional<FoundOrder> best_insertion(const FoundOrder& found, size_t position,
                                           const RepairOptions& options);

  SearchContext& context_;
  Effort& effort_;
  InsertionFinder finder_;
};

}  // namespace remat
