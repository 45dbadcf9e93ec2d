// SPDX-License-Identifier: Apache-2.0
#include "remat/report/op_costs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "remat/core/analysis/uses.h"

namespace remat {
namespace {

using Use = std::optional<OpId>;

void earliest(Use& kept, const Use& other) {
  if (other && (!kept || *other < *kept)) kept = other;
}
void latest(Use& kept, const Use& other) {
  if (other && (!kept || *other > *kept)) kept = other;
}

// The uses of one storage that is made in forward, or later.
OpCost cost_of(const Graph& graph, const Storage& storage, const std::vector<OpId>& uses,
               const std::vector<int64_t>& time_before_ns) {
  OpCost cost{.created_bytes = storage.bytes};
  for (const OpId use : uses) {
    const bool forward = graph.op(use).phase == Phase::forward;
    earliest(forward ? cost.first_forward_use : cost.first_backward_use, use);
    latest(forward ? cost.last_forward_use : cost.last_backward_use, use);
  }
  const Op& creator = graph.op(*storage.creator);
  if (creator.phase != Phase::forward || !cost.first_backward_use) return cost;
  cost.saved_bytes = storage.bytes;
  const OpId idle_from = cost.last_forward_use.value_or(*storage.creator);
  cost.idle_ns = std::max<int64_t>(
      0, time_before_ns[index(*cost.first_backward_use)] - time_before_ns[index(idle_from) + 1]);
  for (const OpId changer : storage.changers) {
    if (graph.op(changer).phase == Phase::forward) cost.remake_ns += graph.op(changer).time_ns;
  }
  return cost;
}

nlohmann::json use_json(const Use& use) {
  return use ? nlohmann::json(index(*use)) : nlohmann::json(nullptr);
}

}  // namespace

void OpCost::add(const OpCost& other) {
  created_bytes += other.created_bytes;
  saved_bytes += other.saved_bytes;
  earliest(first_forward_use, other.first_forward_use);
  latest(last_forward_use, other.last_forward_use);
  earliest(first_backward_use, other.first_backward_use);
  latest(last_backward_use, other.last_backward_use);
  idle_ns = std::max(idle_ns, other.idle_ns);
  remake_ns += other.remake_ns;
}

std::vector<OpCost> op_costs(const Graph& graph) {
  const Uses uses = uses_of(graph);
  std::vector<int64_t> time_before_ns(graph.ops.size() + 1, 0);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    time_before_ns[i + 1] = time_before_ns[i] + graph.ops[i].time_ns;
  }
  std::vector<OpCost> costs(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (const StorageId made : graph.ops[i].creates) {
      costs[i].add(cost_of(graph, graph.storage(made), uses[made], time_before_ns));
    }
    // One run makes all of its results.
    if (costs[i].saved_bytes > 0) costs[i].remake_ns += graph.ops[i].time_ns;
  }
  return costs;
}

nlohmann::json cost_json(const OpCost& cost) {
  const bool priced = cost.saved_bytes > 0 && cost.remake_ns > 0;
  return {{"created_bytes", cost.created_bytes},
          {"saved_bytes", cost.saved_bytes},
          {"first_forward_use", use_json(cost.first_forward_use)},
          {"last_forward_use", use_json(cost.last_forward_use)},
          {"first_backward_use", use_json(cost.first_backward_use)},
          {"last_backward_use", use_json(cost.last_backward_use)},
          {"idle_ns", cost.idle_ns},
          {"remake_ns", cost.remake_ns},
          {"saved_bytes_per_ms", priced ? nlohmann::json(static_cast<double>(cost.saved_bytes) * 1e6 /
                                                         static_cast<double>(cost.remake_ns))
                                        : nlohmann::json(nullptr)}};
}

}  // namespace remat
