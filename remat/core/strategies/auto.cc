// SPDX-License-Identifier: Apache-2.0

// The default. `optimal` starts from the plan of `search`, which starts from every construction's, so
// that it can lose to none of them; here the plan keeps the name of the strategy that found it.

#include "remat/core/strategies/strategies.h"

namespace remat {

Plan plan_auto(const Graph& graph, const PlanOptions& options, Effort& effort) {
  return plan_best(graph, options, effort);
}

}  // namespace remat
