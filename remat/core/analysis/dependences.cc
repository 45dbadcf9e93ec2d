// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/dependences.h"

#include <algorithm>

#include "remat/core/analysis/operands.h"
#include "remat/core/analysis/touch_order.h"
#include "remat/core/mutual_order.h"

namespace remat {
namespace {

class Collector {
 public:
  explicit Collector(const Graph& graph)
      : graph_(graph), touches_(graph.external_count + kOrderClasses.size()) {
    found_.before.resize(graph.ops.size());
    found_.after.resize(graph.ops.size());
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
  void add_op(OpId id) {
    const Op& op = graph_.op(id);
    std::vector<OpId>& before = found_.before[index(id)];
    const auto touch = [&](size_t thing, bool changes) {
      touches_.touch(thing, id, changes, [&](OpId earlier) { before.push_back(earlier); });
    };
    const auto use = [&](const Value& value, bool changes) {
      if (graph_.storage(value.storage).external()) {
        touch(index(value.storage), changes);
      } else {
        before.push_back(maker(graph_, value));
      }
    };
    for (const Value& value : op.reads) use(value, false);
    for (const Value& value : op.updates) use(value, true);
    for (const Value& value : op.effects) use(value, true);
    for (size_t c = 0; c < kOrderClasses.size(); ++c) {
      if (in_order_class(op, c)) touch(graph_.external_count + c, true);
    }
  }

  const Graph& graph_;
  Dependences found_;
  TouchOrder<OpId> touches_;  // of externals, then of the classes of mutual order
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
