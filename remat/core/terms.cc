// SPDX-License-Identifier: Apache-2.0
#include "remat/core/terms.h"

#include <utility>

namespace remat::detail {

size_t Terms::Hash::operator()(const std::vector<int64_t>& parts) const {
  uint64_t hash = parts.size();
  for (const int64_t part : parts) {
    hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

Term Terms::number(std::vector<int64_t> parts) {
  return known_.try_emplace(std::move(parts), as_part(known_.size())).first->second;
}

Term Terms::applied(size_t op, std::span<const Term> inputs) {
  std::vector<int64_t> parts;
  parts.reserve(2 + inputs.size());
  parts = {kApplied, as_part(op)};
  parts.insert(parts.end(), inputs.begin(), inputs.end());
  return number(std::move(parts));
}

Truth run_given_order(const Graph& graph, Terms& terms) {
  Truth truth;
  truth.last.resize(graph.storages.size(), -1);
  for (size_t i = 0; i < graph.external_count; ++i) truth.last[i] = terms.external(i);
  truth.generator = terms.generator();
  const auto content = [&](const Value& value) -> Term& {
    return truth.last[index(value.storage)];
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    std::vector<Term> inputs;
    inputs.reserve(op.reads.size() + op.updates.size() + 1);
    for (const Value& value : op.reads) inputs.push_back(content(value));
    for (const Value& value : op.updates) inputs.push_back(content(value));
    truth.inputs.push_back(inputs);
    if (op.random) {
      inputs.push_back(truth.generator);
      truth.generator = terms.advanced(i, truth.generator);
    }
    const Term applied = terms.applied(i, inputs);
    std::vector<Term>& effects = truth.effects.emplace_back();
    for (size_t k = 0; k < op.effects.size(); ++k) {
      effects.push_back(content(op.effects[k]));
      content(op.effects[k]) = terms.affected(applied, k, effects.back());
    }
    for (size_t k = 0; k < op.updates.size(); ++k) {
      content(op.updates[k]) = terms.updated(applied, k);
    }
    for (size_t k = 0; k < op.creates.size(); ++k) {
      truth.last[index(op.creates[k])] = terms.created(applied, k);
    }
  }
  return truth;
}

}  // namespace remat::detail
