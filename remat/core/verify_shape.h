// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "remat/core/verify.h"

namespace remat::detail {

// The first part of verify: whether every number in the schedule names something. Ops and instances
// exist, operands lie within their table, the first instances are the graph's externals. What follows may
// look anything up without asking again.
std::optional<Violation> shape_violation(const Graph& graph, const Schedule& schedule);

}  // namespace remat::detail
