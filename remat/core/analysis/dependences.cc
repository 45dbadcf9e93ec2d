// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/dependences.h"

#include <algorithm>
#include <array>
#include <optional>

#include "remat/core/analysis/operands.h"
#include "remat/core/mutual_order.h"

namespace remat {
namespace {

class Collector {
 public:
  explicit Collector(const Graph& graph) : graph_(graph) {
    found_.before.resize(graph.ops.size());
    found_.after.resize(graph.ops.size());
    readers_.resize(graph.external_count);
  }

  Dependences collect() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) add_op(static_cast<OpId>(i));
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      std::vector<OpId>& before = found_.before[i];
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      for (const OpId op : before) found_.after[index(op)].push_back(static_cast<OpId>(i));
    }
    return std::move(found_);
  }

 private:
  void add(OpId before, OpId after) {
    if (before != after) found_.before[index(after)].push_back(before);
  }

  void add_user(const Value& value, OpId user) {
    const Storage& storage = graph_.storage(value.storage);
    if (!storage.external()) {
      add(maker(graph_, value), user);
    } else if (value.version > 0) {
      add(storage.changers[static_cast<size_t>(value.version) - 1], user);
    }
  }

  void add_op(OpId id) {
    const Op& op = graph_.op(id);
    for (const Value& value : op.reads) add_user(value, id);
    for (const Value& value : op.updates) add_user(value, id);
    for (const Value& value : op.effects) add_user(value, id);
    // Readers of a version before the op that ends it; the graph's order has them in that order.
    const auto change = [&](const Value& value) {
      if (!graph_.storage(value.storage).external()) return;
      for (const OpId reader : readers_[index(value.storage)]) add(reader, id);
      readers_[index(value.storage)].clear();
    };
    std::for_each(op.updates.begin(), op.updates.end(), change);
    std::for_each(op.effects.begin(), op.effects.end(), change);
    for (const Value& value : op.reads) {
      if (graph_.storage(value.storage).external()) readers_[index(value.storage)].push_back(id);
    }
    for (size_t c = 0; c < kOrderClasses.size(); ++c) {
      if (!in_order_class(op, c)) continue;
      if (latest_[c]) add(*latest_[c], id);
      latest_[c] = id;
    }
  }

  const Graph& graph_;
  Dependences found_;
  std::vector<std::vector<OpId>> readers_;  // by external: of its present version
  std::array<std::optional<OpId>, kOrderClasses.size()> latest_;  // by class of mutual order
};

}  // namespace

Dependences dependences_of(const Graph& graph) { return Collector(graph).collect(); }

std::vector<bool> reached(const std::vector<std::vector<OpId>>& edges, OpId op) {
  std::vector<bool> seen(edges.size(), false);
  std::vector<OpId> open = {op};
  while (!open.empty()) {
    const OpId next = open.back();
    open.pop_back();
    for (const OpId neighbour : edges[index(next)]) {
      if (seen[index(neighbour)]) continue;
      seen[index(neighbour)] = true;
      open.push_back(neighbour);
    }
  }
  return seen;
}

}  // namespace remat
