// SPDX-License-Identifier: Apache-2.0

// The do-nothing baseline: the given order. It differs from the plain framework only in `reuse`.

#include <utility>

#include "remat/core/strategies/strategies.h"

namespace remat {

Plan plan_keep_all(const Graph& graph, const PlanOptions& options) {
  return make_plan(graph, "keep_all", given_order(graph), options.budget_bytes);
}

Plan keep_all_instead(const Graph& graph, const PlanOptions& options, std::string_view strategy,
                      std::string note) {
  Plan plan = plan_keep_all(graph, options);
  plan.strategy = strategy;
  plan.note = std::move(note);
  return plan;
}

}  // namespace remat
