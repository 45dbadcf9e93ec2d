// SPDX-License-Identifier: Apache-2.0

// The do-nothing baseline: the given order. It differs from the plain framework only in `reuse`.

#include "remat/core/strategies/strategies.h"

namespace remat {

Plan plan_keep_all(const Graph& graph, const PlanOptions& options) {
  return make_plan(graph, "keep_all", given_order(graph), options.budget_bytes);
}

}  // namespace remat
