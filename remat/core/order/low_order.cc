// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/low_order.h"

#include <algorithm>
#include <cstdint>

#include "remat/core/analysis/touch_order.h"
#include "remat/core/order/passing.h"

namespace remat {
namespace {

class Greedy {
 public:
  explicit Greedy(const Graph& graph)
      : graph_(graph),
        waits_for_(graph.ops.size(), 0),
        after_(graph.ops.size()),
        uses_left_(graph.storages.size(), 0) {
    for (const Op& op : graph.ops) {
      for (const StorageId id : touched(op)) ++uses_left_[index(id)];
    }
    find_waits();
    for (const StorageId id : graph.outputs) ++uses_left_[index(id)];
    for (size_t i = 0; i < graph.external_count; ++i) uses_left_[i] = kAlways;
  }

  std::vector<OpId> order() {
    std::vector<OpId> ready, order;
    for (size_t o = 0; o < graph_.ops.size(); ++o) {
      if (waits_for_[o] == 0) ready.push_back(static_cast<OpId>(o));
    }
    while (!ready.empty()) {
      const auto next = best_of(ready);
      const OpId op = *next;
      ready.erase(next);
      order.push_back(op);
      for (const StorageId id : touched(graph_.op(op))) --uses_left_[index(id)];
      for (const OpId after : after_[index(op)]) {
        if (--waits_for_[index(after)] == 0) ready.push_back(after);
      }
    }
    return order;
  }

 private:
  static constexpr int64_t kAlways = int64_t{1} << 60;

  static std::vector<StorageId> touched(const Op& op) {
    std::vector<StorageId> ids;
    for (const Value& value : op.reads) ids.push_back(value.storage);
    for (const Value& value : op.updates) ids.push_back(value.storage);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  // There is one copy of everything: an op waits for all that it may not pass.
  void find_waits() {
    const Passing passing(graph_);
    TouchOrder<OpId> touches(passing.thing_count());
    for (size_t o = 0; o < graph_.ops.size(); ++o) {
      const OpId op = static_cast<OpId>(o);
      for (const Passing::Touch& touch : passing.touches(op)) {
        touches.touch(static_cast<size_t>(touch.thing), op, touch.changes, [&](OpId earlier) {
          ++waits_for_[o];
          after_[index(earlier)].push_back(op);
        });
      }
    }
  }

  // What is resident after the op, less what was before it.
  int64_t growth_bytes(const Op& op) const {
    int64_t bytes = 0;
    for (const StorageId id : op.creates) {
      if (uses_left_[index(id)] > 0) bytes += graph_.storage(id).bytes;
    }
    for (const StorageId id : touched(op)) {
      if (uses_left_[index(id)] == 1) bytes -= graph_.storage(id).bytes;
    }
    return bytes;
  }

  std::vector<OpId>::const_iterator best_of(const std::vector<OpId>& ready) const {
    auto best = ready.begin();
    int64_t least = growth_bytes(graph_.op(*best));
    for (auto other = ready.begin() + 1; other != ready.end(); ++other) {
      const int64_t bytes = growth_bytes(graph_.op(*other));
      if (bytes > least || (bytes == least && *other > *best)) continue;
      best = other;
      least = bytes;
    }
    return best;
  }

  const Graph& graph_;
  std::vector<size_t> waits_for_;         // by op: how many must run before it
  std::vector<std::vector<OpId>> after_;  // by op: who waits for it
  std::vector<int64_t> uses_left_;  // by storage
};

}  // namespace

std::vector<OpId> low_peak_order(const Graph& graph) { return Greedy(graph).order(); }

}  // namespace remat
