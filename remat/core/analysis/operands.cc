// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/operands.h"

#include <algorithm>

#include "remat/core/error.h"
#include "remat/core/reuse.h"

namespace remat {

std::vector<Value> internal_inputs(const Graph& graph, const Op& op) {
  std::vector<Value> inputs;
  const auto add = [&](const Value& value) {
    if (graph.storage(value.storage).external()) return;
    if (std::find(inputs.begin(), inputs.end(), value) == inputs.end()) inputs.push_back(value);
  };
  std::for_each(op.reads.begin(), op.reads.end(), add);
  std::for_each(op.updates.begin(), op.updates.end(), add);
  return inputs;
}

int64_t bytes_while_running(const Graph& graph, const Op& op) {
  int64_t bytes = op.workspace_bytes;
  for (const Value& value : internal_inputs(graph, op)) {
    bytes += graph.storage(value.storage).bytes;
  }
  for (const StorageId id : op.creates) bytes += graph.storage(id).bytes;
  return bytes;
}

int64_t shared_bytes(const Graph& graph, const Reuse& reuse) {
  if (graph.storage(reuse.source).external()) return 0;
  return shared_bytes(graph.storage(reuse.result).bytes, graph.storage(reuse.source).bytes);
}

Value source_of(const Op& op, const Reuse& reuse) {
  const auto found = std::find_if(op.reads.begin(), op.reads.end(), [&](const Value& value) {
    return value.storage == reuse.source;
  });
  REMAT_ASSERT(found != op.reads.end());
  return *found;
}

OpId maker(const Graph& graph, const Value& value) {
  const Storage& storage = graph.storage(value.storage);
  REMAT_ASSERT(!storage.external() || value.version > 0);
  return value.version == 0 ? *storage.creator
                            : storage.changers[static_cast<size_t>(value.version) - 1];
}

ValueNumbers::ValueNumbers(const Graph& graph) : first_(graph.storages.size(), 0) {
  for (size_t s = graph.external_count; s < graph.storages.size(); ++s) {
    first_[s] = values_.size();
    const int32_t last = static_cast<int32_t>(graph.storages[s].changers.size());
    for (int32_t version = 0; version <= last; ++version) {
      values_.push_back({static_cast<StorageId>(s), version});
      most_copies_.push_back(1 + last - version);
    }
  }
}

}  // namespace remat
