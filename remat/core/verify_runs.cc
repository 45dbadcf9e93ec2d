// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify_runs.h"

#include <algorithm>

#include "remat/core/error.h"

namespace remat::detail {

RunRules::RunRules(const Graph& graph)
    : graph_(graph),
      has_run_(graph.ops.size(), false),
      classes_{Class{"random op", {}}, Class{"once op", {}}, Class{"op with effects", {}}} {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const std::array<bool, 3> belongs = {op.random, op.once, !op.effects.empty()};
    for (size_t c = 0; c < classes_.size(); ++c) {
      if (belongs[c]) classes_[c].ops.push_back(static_cast<OpId>(i));
    }
  }
}

std::optional<RunRules::Objection> RunRules::run(OpId id) {
  if (has_run_[index(id)]) {
    return Objection{ViolationKind::run_twice,
                     "the op has run already; expected recompute for every later time"};
  }
  has_run_[index(id)] = true;
  for (Class& one : classes_) {
    if (!std::binary_search(one.ops.begin(), one.ops.end(), id)) continue;
    const OpId due = one.ops[one.runs++];
    if (due == id) continue;
    return Objection{ViolationKind::order_changed,
                     concat("it runs as ", one.name, " number ", one.runs, "; expected ",
                            graph_.op(due).name, " there, as in the graph")};
  }
  return std::nullopt;
}

std::optional<RunRules::Objection> RunRules::recompute(OpId id) const {
  const Op& op = graph_.op(id);
  if (!has_run_[index(id)]) {
    return Objection{ViolationKind::recompute_first,
                     "the op is recomputed before it has run; expected its run first"};
  }
  if (op.once) {
    return Objection{ViolationKind::once_recomputed,
                     "the op is marked once and is recomputed; expected a single run"};
  }
  for (const Value& value : op.updates) {
    const Storage& storage = graph_.storage(value.storage);
    if (!storage.external()) continue;
    return Objection{ViolationKind::once_recomputed,
                     concat("the op updates the external ", storage.name,
                            " and is recomputed; expected a single run")};
  }
  return std::nullopt;
}

std::optional<OpId> RunRules::missing() const {
  const auto found = std::find(has_run_.begin(), has_run_.end(), false);
  if (found == has_run_.end()) return std::nullopt;
  return static_cast<OpId>(found - has_run_.begin());
}

}  // namespace remat::detail
