// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/passing.h"

#include <algorithm>

#include "remat/core/mutual_order.h"
#include "remat/core/schedule.h"

namespace remat {

Passing::Passing(const Graph& graph) : stamp_of_(graph.storage_count() + kOrderClasses.size(), 0) {
  const auto add = [&](size_t thing, bool changes) {
    touches_.push_back({static_cast<int32_t>(thing), changes});
  };
  for (size_t i = 0; i < graph.op_count(); ++i) {
    const OpId id = static_cast<OpId>(i);
    const Op& op = graph.op(id);
    // No run uses a copy after it was offloaded: an offload changes what it reads.
    const bool offload = step_kind_of(graph, id) == StepKind::offload;
    start_.push_back(static_cast<int32_t>(touches_.size()));
    for (const Value& value : op.reads) {
      const Storage& storage = graph.storage(value.storage);
      const bool never_changes = storage.external() && storage.changers.empty();
      if (!never_changes) add(index(value.storage), offload);
    }
    for (const Value& value : op.updates) add(index(value.storage), true);
    for (const Value& value : op.effects) add(index(value.storage), true);
    for (const StorageId created : op.creates) add(index(created), true);
    for (size_t c = 0; c < kOrderClasses.size(); ++c) {
      if (in_order_class(op, c)) add(graph.storage_count() + c, true);
    }
  }
  start_.push_back(static_cast<int32_t>(touches_.size()));
}

std::span<const Passing::Touch> Passing::touches(OpId op) const {
  const size_t begin = static_cast<size_t>(start_[index(op)]);
  return {touches_.data() + begin, static_cast<size_t>(start_[index(op) + 1]) - begin};
}

bool Passing::may_pass(OpId op) const {
  return std::ranges::none_of(touches(op), [&](const Touch& touch) {
    const int32_t stamp = stamp_of_[static_cast<size_t>(touch.thing)];
    return stamp == -stamp_ || (stamp == stamp_ && touch.changes);
  });
}

size_t Passing::reach(std::span<const OpId> order, size_t from, bool later) {
  ++stamp_;
  for (const Touch& touch : touches(order[from])) {
    int32_t& stamp = stamp_of_[static_cast<size_t>(touch.thing)];
    if (stamp != -stamp_) stamp = touch.changes ? -stamp_ : stamp_;
  }
  const size_t room = later ? order.size() - 1 - from : from;
  size_t passed = 0;
  while (passed < room && may_pass(order[later ? from + passed + 1 : from - passed - 1])) ++passed;
  return passed;
}

}  // namespace remat
