// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/core/plan.h"

namespace remat::testing {

// What is wrong with an order as a plan for the budget, or nothing: it must be legal, and `verify` must
// accept what `rewrite` makes of it.
std::string plan_fault(const Graph& graph, const std::vector<OpId>& order, int64_t budget_bytes);

// The same for all that a plan says of itself: its peak and time are those of `simulate`, it is feasible
// if it needs no more than the budget, and `verify` accepts it, within what it needs if it is not. With
// addresses, those are right too.
std::string plan_fault(const Graph& graph, const Plan& plan, int64_t budget_bytes);

}  // namespace remat::testing
