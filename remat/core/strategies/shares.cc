// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/shares.h"

#include <algorithm>

#include "remat/core/order/cost.h"

namespace remat {
namespace {

constexpr double kMostWork = 4e17;  // decades

}  // namespace

Effort effort_of_plan(const PlanOptions& options) {
  const double most_seconds = options.max_orders > 0
                                  ? std::numeric_limits<double>::infinity()
                                  : Effort::most_cpu_seconds(options.time_limit_seconds);
  return Effort(most_seconds, options.stop, Effort::work_of_seconds(most_seconds));
}

int64_t work_share(const Graph& graph, const PlanOptions& options, double share) {
  if (options.max_orders > 0) {
    // So much that `search`, with its share, can look at so many orders.
    const double order_work =
        static_cast<double>(OrderCost::kWorkPerOp) * static_cast<double>(graph.ops.size());
    const double work = order_work * static_cast<double>(options.max_orders) * share / kSearchShare;
    return static_cast<int64_t>(std::min(work, kMostWork));
  }
  return Effort::work_of_seconds(options.time_limit_seconds * share);
}

}  // namespace remat
