// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/shares.h"

#include "remat/core/order/cost.h"

namespace remat {
namespace {

// A machine this many times slower than the counted work supposes still gives the same plan.
constexpr double kSlowest = 4;

}  // namespace

Effort effort_of(const Graph& graph, const PlanOptions& options, double share) {
  if (options.max_moves > 0) {
    // So much that `search`, with its share, can look at so many orders.
    const double order_ns = OrderCost::kNsPerWork * static_cast<double>(OrderCost::kWorkPerOp) *
                            static_cast<double>(graph.ops.size());
    return Effort(1e-9 * order_ns * static_cast<double>(options.max_moves) * share / kSearchShare);
  }
  return Effort(options.time_limit_seconds * share, options.time_limit_seconds * kSlowest);
}

}  // namespace remat
