// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"

namespace remat {

// Bytes over the planned step, with the budget as a line (kNoBudget: none), as one <svg>.
std::string plan_svg(const Graph& graph, const Schedule& schedule, int64_t budget_bytes);

// A page that needs nothing else: the plain step and the planned one on the same axes, and by layer
// what is computed again and what that takes.
std::string plan_html(const Graph& graph, const Schedule& schedule, int64_t budget_bytes,
                      const std::string& title);

}  // namespace remat
