// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/cost.h"

#include <algorithm>

#include "remat/core/analysis/operands.h"
#include "remat/core/reuse.h"

namespace remat {

OrderCost::OrderCost(const Graph& graph) : external_bytes_(graph.external_bytes()) {
  number_values(graph);
  flatten_ops(graph);
  copies_.resize(bytes_.size(), 0);
  first_run_.resize(graph.ops.size(), 0);
}

void OrderCost::number_values(const Graph& graph) {
  std::vector<bool> read(graph.storages.size(), false);
  for (const Op& op : graph.ops) {
    for (const Value& value : op.reads) read[index(value.storage)] = true;
    for (const Value& value : op.updates) read[index(value.storage)] = true;
  }
  first_value_.resize(graph.storages.size(), kAlwaysThere);
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const Storage& storage = graph.storages[s];
    if (storage.external() && (storage.changers.empty() || !read[s])) continue;
    first_value_[s] = static_cast<ValueIndex>(bytes_.size());
    for (size_t version = 0; version <= storage.changers.size(); ++version) {
      bytes_.push_back(storage.external() ? 0 : storage.bytes);
      storage_.push_back(static_cast<StorageId>(s));
      version_.push_back(static_cast<int32_t>(version));
      external_value_.push_back(storage.external());
    }
  }
  for (const StorageId id : graph.outputs) {
    if (!graph.storage(id).external()) {
      outputs_.push_back(value_of({id, graph.last_version(id)}));
    }
  }
}

OrderCost::ValueIndex OrderCost::value_of(const Value& value) const {
  const ValueIndex first = first_value_[index(value.storage)];
  return first == kAlwaysThere ? kAlwaysThere : first + value.version;
}

void OrderCost::flatten_ops(const Graph& graph) {
  effects_.resize(graph.ops.size());
  std::vector<size_t> last_reader(bytes_.size(), graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    read_start_.push_back(static_cast<int32_t>(reads_.size()));
    update_start_.push_back(static_cast<int32_t>(updates_.size()));
    create_start_.push_back(static_cast<int32_t>(creates_.size()));
    reuse_start_.push_back(static_cast<int32_t>(reuse_.size()));
    for (const Value& value : op.reads) {
      const ValueIndex read = value_of(value);
      if (read == kAlwaysThere || last_reader[static_cast<size_t>(read)] == i) continue;
      last_reader[static_cast<size_t>(read)] = i;
      reads_.push_back(read);
    }
    for (const Value& value : op.updates) {
      const ValueIndex before = value_of(value);
      updates_.push_back({before, before + 1});
    }
    for (const StorageId id : op.creates) creates_.push_back(value_of({id, 0}));
    for (const Reuse& reuse : op.reuse) {
      if (graph.storage(reuse.source).external()) continue;
      reuse_.push_back({value_of({reuse.result, 0}), value_of(source_of(op, reuse)),
                        shared_bytes(graph, reuse)});
    }
    for (const Value& value : op.effects) {
      const ValueIndex before = value_of(value);
      if (before == kAlwaysThere) continue;
      effects_[i].push_back({before, before + 1});
      has_effects_ = true;
    }
    workspace_.push_back(op.workspace_bytes);
    time_ns_.push_back(op.time_ns);
  }
  read_start_.push_back(static_cast<int32_t>(reads_.size()));
  update_start_.push_back(static_cast<int32_t>(updates_.size()));
  create_start_.push_back(static_cast<int32_t>(creates_.size()));
  reuse_start_.push_back(static_cast<int32_t>(reuse_.size()));
}

OrderCost::Result OrderCost::evaluate(std::span<const OpId> order, int64_t budget_bytes) {
  Result result;
  resident_.resize(order.size());
  std::fill(copies_.begin(), copies_.end(), 0);
  if (has_effects_) {
    for (size_t i = order.size(); i-- > 0;) first_run_[index(order[i])] = static_cast<int32_t>(i);
  }
  int64_t now = external_bytes_;  // resident after the op that is looked at
  int64_t live_copies = 0;        // of all values together
  for (const ValueIndex output : outputs_) {
    copies_[static_cast<size_t>(output)] = 1;
    now += bytes(output);
    ++live_copies;
  }
  result.peak_bytes = now;
  result.peak_position = order.empty() ? 0 : order.size() - 1;
  const auto at = [](ValueIndex value) { return static_cast<size_t>(value); };
  for (size_t i = order.size(); i-- > 0;) {
    const OpId op = order[i];
    int64_t during = now + workspace_[index(op)];
    int64_t before = now;
    // Results first: they come to be here. One that nobody needs is there while the op runs.
    for (const ValueIndex created : creates(op)) {
      if (copies_[at(created)] > 0) {
        --copies_[at(created)];
        --live_copies;
        before -= bytes_[at(created)];
      } else {
        during += bytes_[at(created)];
      }
    }
    const auto change = [&](const Update& update) {
      // Two copies can be live before it: this one, and one that stays at the earlier version.
      if (copies_[at(update.after)] > 0) {
        --copies_[at(update.after)];
      } else {
        during += bytes_[at(update.after)];
        before += bytes_[at(update.after)];
        ++live_copies;
      }
      ++copies_[at(update.before)];
    };
    for (const Update& update : updates(op)) change(update);
    if (has_effects_ && first_run_[index(op)] == static_cast<int32_t>(i)) {
      for (const Update& effect : effects_[index(op)]) change(effect);
    }
    if (const auto pairs = reuse(op); !pairs.empty()) {
      take_places(
          pairs, [&](const ReusePair& pair) { return copies_[at(pair.source)] == 0; }, taken_);
      for (const ReusePair& pair : taken_) during -= pair.shared_bytes;
    }
    for (const ValueIndex read : reads(op)) {
      if (copies_[at(read)] > 0) continue;
      copies_[at(read)] = 1;
      ++live_copies;
      during += bytes_[at(read)];
      before += bytes_[at(read)];
    }
    resident_[i] = during;
    if (during >= result.peak_bytes) {
      result.peak_bytes = during;
      result.peak_position = i;
    }
    if (during > budget_bytes) result.overflow += static_cast<double>(during - budget_bytes);
    result.time_ns += time_ns_[index(op)];
    now = before;
  }
  // What is live at the start must be an external at its first version, once.
  for (size_t v = 0; v < external_value_.size() && live_copies > 0; ++v) {
    if (external_value_[v] && version_[v] == 0 && copies_[v] == 1) --live_copies;
  }
  result.legal = live_copies == 0;
  return result;
}

}  // namespace remat
