// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/plan_fault.h"

#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "tests/testing/check_placement.h"

namespace remat::testing {

std::string plan_fault(const Graph& graph, const std::vector<OpId>& order, int64_t budget_bytes) {
  try {
    const auto violation = verify(graph, rewrite(graph, order), budget_bytes);
    if (!violation) return "";
    return detail::concat(name(violation->kind), " at ", violation->op, ": ", violation->reason);
  } catch (const Error& error) {
    return error.what();
  }
}

std::string plan_fault(const Graph& graph, const Plan& plan, int64_t budget_bytes) {
  const int64_t limit = plan.feasible ? budget_bytes : plan.peak_bytes;
  if (std::string fault = plan_fault(graph, plan.order, limit); !fault.empty()) return fault;
  const Schedule schedule = rewrite(graph, plan.order);
  const Peak peak = simulate_peak(graph, schedule);
  if (peak.bytes != plan.peak_bytes) {
    return detail::concat("its peak is ", peak.bytes, "; it says ", plan.peak_bytes);
  }
  if (peak.time_ns != plan.time_ns) {
    return detail::concat("it takes ", peak.time_ns, " ns; it says ", plan.time_ns);
  }
  if (!plan.feasible && peak.bytes <= budget_bytes) return "it fits; it says that it does not";
  return plan.placement ? placement_fault(graph, schedule, *plan.placement) : "";
}

}  // namespace remat::testing
