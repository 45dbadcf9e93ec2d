// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/uses.h"

#include <algorithm>

#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"

namespace remat {
Uses uses_of(const Graph& graph) {
  Uses uses;
  uses.of.resize(graph.storages.size());
  const auto add = [&](StorageId storage, OpId op) {
    std::vector<OpId>& ops = uses.of[index(storage)];
    if (ops.empty() || ops.back() != op) ops.push_back(op);
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId op = static_cast<OpId>(i);
    for (const Value& value : graph.ops[i].reads) add(value.storage, op);
    for (const Value& value : graph.ops[i].updates) add(value.storage, op);
  }
  return uses;
}

OpId turning_point(const Graph& graph) {
  if (graph.ops.empty()) return OpId{};
  // An update may begin before forward does: what it reads on the host (Adam's step counts) comes first.
  const auto backward = std::ranges::find(graph.ops, Phase::backward, &Op::phase);
  const auto update = std::ranges::find(graph.ops, Phase::optimizer, &Op::phase);
  const auto found = backward != graph.ops.end() ? backward : update;
  if (found != graph.ops.end()) return static_cast<OpId>(found - graph.ops.begin());
  const Schedule schedule = rewrite(graph, given_order(graph));
  return schedule.steps[simulate_peak(graph, schedule).step].op;
}

bool can_be_made_again(const Graph& graph, const Value& value) {
  const Storage& storage = graph.storage(value.storage);
  if (storage.external() || !graph.rerunnable(*storage.creator)) return false;
  return std::all_of(storage.changers.begin(), storage.changers.begin() + value.version,
                     [&](OpId changer) { return graph.rerunnable(changer); });
}

std::vector<Candidate> candidates_of(const Graph& graph, const Uses& uses, OpId turning_point) {
  std::vector<Candidate> candidates;
  for (size_t i = graph.external_count; i < graph.storages.size(); ++i) {
    const Storage& storage = graph.storages[i];
    const std::vector<OpId>& ops = uses.of[i];
    if (storage.bytes == 0 || storage.output || *storage.creator >= turning_point) continue;
    const auto first_after = std::lower_bound(ops.begin(), ops.end(), turning_point);
    if (first_after == ops.end()) continue;
    const OpId last_before = first_after == ops.begin() ? *storage.creator : *(first_after - 1);
    if (index(last_before) + 1 == index(*first_after)) continue;
    const int32_t version = storage.version_before(turning_point);
    if (!can_be_made_again(graph, {static_cast<StorageId>(i), version})) continue;
    candidates.push_back({.storage = static_cast<StorageId>(i),
                          .last_before = last_before,
                          .first_after = *first_after,
                          .last_after = ops.back(),
                          .version = version});
  }
  return candidates;
}

}  // namespace remat
