// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/cost.h"

#include <algorithm>

#include "remat/core/analysis/operands.h"
#include "remat/core/reuse.h"
#include "remat/core/schedule.h"
#include "remat/core/step_clock.h"

namespace remat {

OrderCost::OrderCost(const Graph& graph)
    : channel_(graph.channel), external_bytes_(graph.external_bytes()) {
  number_values(graph);
  flatten_ops(graph);
  copies_ = NeededCopies(bytes_.size());
  first_run_.resize(graph.op_count(), 0);
}

void OrderCost::number_values(const Graph& graph) {
  std::vector<bool> read(graph.storages.size(), false);
  for (const Op& op : graph.ops) {
    for (const Value& value : op.reads) read[index(value.storage)] = true;
    for (const Value& value : op.updates) read[index(value.storage)] = true;
  }
  first_value_.resize(graph.storage_count(), kAlwaysThere);
  for (size_t s = 0; s < graph.storage_count(); ++s) {
    const Storage& storage = graph.storage(static_cast<StorageId>(s));
    if (storage.external() && (storage.changers.empty() || !read[s])) continue;
    first_value_[s] = static_cast<ValueIndex>(bytes_.size());
    for (size_t version = 0; version <= storage.changers.size(); ++version) {
      bytes_.push_back(storage.external() ? 0 : storage.bytes);
      storage_.push_back(static_cast<StorageId>(s));
      version_.push_back(static_cast<int32_t>(version));
      external_value_.push_back(storage.external());
    }
  }
  for (const Value& value : output_values(graph)) outputs_.push_back(value_of(value));
}

NeededCopies OrderCost::needed_at_the_end() const {
  NeededCopies copies(value_count());
  for (const ValueIndex output : outputs_) copies.read(static_cast<size_t>(output));
  return copies;
}

void OrderCost::step_back(OpId op, NeededCopies& copies) const {
  const auto at = [](ValueIndex value) { return static_cast<size_t>(value); };
  for (const ValueIndex value : creates(op)) copies.make(at(value));
  for (const Update& update : updates(op)) copies.change(at(update.before), at(update.after));
  for (const ValueIndex value : reads(op)) copies.read(at(value));
}

OrderCost::ValueIndex OrderCost::value_of(const Value& value) const {
  const ValueIndex first = first_value_[index(value.storage)];
  return first == kAlwaysThere ? kAlwaysThere : first + value.version;
}

void OrderCost::flatten_ops(const Graph& graph) {
  effects_.resize(graph.op_count());
  std::vector<size_t> last_reader(bytes_.size(), graph.op_count());
  for (size_t i = 0; i < graph.op_count(); ++i) {
    const OpId id = static_cast<OpId>(i);
    const Op& op = graph.op(id);
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
    for (const StorageId created : op.creates) {
      creates_.push_back(value_of({created, graph.created_version(id)}));
    }
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
    const StepKind kind = step_kind_of(graph, id);
    transfer_.push_back(kind == StepKind::offload    ? Transfer::offload
                        : kind == StepKind::prefetch ? Transfer::prefetch
                                                     : Transfer::none);
  }
  read_start_.push_back(static_cast<int32_t>(reads_.size()));
  update_start_.push_back(static_cast<int32_t>(updates_.size()));
  create_start_.push_back(static_cast<int32_t>(creates_.size()));
  reuse_start_.push_back(static_cast<int32_t>(reuse_.size()));
}

OrderCost::Result OrderCost::evaluate(std::span<const OpId> order, int64_t budget_bytes) {
  Result result;
  resident_.resize(order.size());
  copies_.reset();
  if (has_effects_) {
    for (size_t i = order.size(); i-- > 0;) first_run_[index(order[i])] = static_cast<int32_t>(i);
  }
  if (channel_) left_out_.assign(order.size(), 0);
  int64_t now = external_bytes_;  // resident after the op that is looked at
  int64_t live_copies = 0;        // of all values together
  bool illegal = false;
  for (const ValueIndex output : outputs_) {
    copies_.read(static_cast<size_t>(output));
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
    if (transfer_[index(op)] != Transfer::none) {
      if (!copies_.needed(at(creates(op)[0]))) {  // rewrite leaves it out
        left_out_[i] = 1;
        resident_[i] = now;
        continue;
      }
      result.transfers = true;
      // A copy ends where it is offloaded.
      if (transfer_[index(op)] == Transfer::offload && copies_.needed(at(reads(op)[0]))) illegal = true;
    }
    // Results first: before the op they do not exist. A result that no op needs exists while this one runs.
    for (const ValueIndex created : creates(op)) {
      if (copies_.make(at(created))) {
        --live_copies;
        before -= bytes_[at(created)];
      } else {
        during += bytes_[at(created)];
      }
    }
    const auto change = [&](const Update& update) {
      // Two copies can be live before it: the one that is changed, and one that stays at the earlier version.
      if (copies_.change(at(update.before), at(update.after))) return;
      during += bytes_[at(update.after)];
      before += bytes_[at(update.after)];
      ++live_copies;
    };
    for (const Update& update : updates(op)) change(update);
    if (has_effects_ && first_run_[index(op)] == static_cast<int32_t>(i)) {
      for (const Update& effect : effects_[index(op)]) change(effect);
    }
    if (const auto pairs = reuse(op); !pairs.empty()) {
      take_places(
          pairs, [&](const ReusePair& pair) { return !copies_.needed(at(pair.source)); }, taken_);
      for (const ReusePair& pair : taken_) during -= pair.shared_bytes;
    }
    for (const ValueIndex read : reads(op)) {
      if (!copies_.read(at(read))) continue;
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
    if (external_value_[v] && version_[v] == 0 && copies_.count(v) == 1) --live_copies;
  }
  result.legal = live_copies == 0 && !illegal;
  if (result.transfers) result.time_ns = time_with_transfers(order, nullptr);
  return result;
}

void OrderCost::find_times(std::span<const OpId> order, std::vector<int64_t>& begin_ns) {
  begin_ns.resize(order.size() + 1);
  begin_ns[order.size()] = time_with_transfers(order, &begin_ns);
}

// The steps that rewrite makes of the order, on the clock: a write begins after the last position that
// made or used the copy.
int64_t OrderCost::time_with_transfers(std::span<const OpId> order, std::vector<int64_t>* begin_ns) {
  const auto at = [](ValueIndex value) { return static_cast<size_t>(value); };
  const auto left_out = [&](size_t i) { return channel_ && left_out_[i] != 0; };
  touched_.assign(bytes_.size(), 0);
  ready_ns_.assign(bytes_.size(), 0);
  written_ns_.assign(order.size(), 0);
  writes_.clear();
  for (size_t i = 0; i < order.size(); ++i) {
    const OpId op = order[i];
    const int32_t position = static_cast<int32_t>(i);
    if (left_out(i)) continue;
    if (transfer_[index(op)] == Transfer::offload) {
      writes_.push_back({touched_[at(reads(op)[0])], position});
    }
    for (const ValueIndex read : reads(op)) touched_[at(read)] = position;
    for (const Update& update : updates(op)) touched_[at(update.after)] = position;
    for (const ValueIndex created : creates(op)) touched_[at(created)] = position;
  }
  std::ranges::stable_sort(writes_, {}, &Write::begins);
  StepClock clock(channel_);
  auto write = writes_.begin();
  for (size_t i = 0; i < order.size(); ++i) {
    const OpId op = order[i];
    const Transfer transfer = left_out(i) ? Transfer::none : transfer_[index(op)];
    if (transfer == Transfer::offload) {
      clock.wait_until(written_ns_[i]);
    } else if (!left_out(i)) {
      for (const ValueIndex read : reads(op)) clock.wait_until(ready_ns_[at(read)]);
      for (const Update& update : updates(op)) clock.wait_until(ready_ns_[at(update.before)]);
    }
    if (begin_ns != nullptr) (*begin_ns)[i] = clock.now_ns();
    if (left_out(i)) continue;
    clock.run(time_ns_[index(op)]);
    for (const ValueIndex created : creates(op)) ready_ns_[at(created)] = 0;
    for (const Update& update : updates(op)) ready_ns_[at(update.after)] = 0;
    if (transfer == Transfer::prefetch) {
      const ValueIndex brought = creates(op)[0];
      ready_ns_[at(brought)] = clock.read(bytes(brought));
    }
    for (; write != writes_.end() && write->begins == static_cast<int32_t>(i); ++write) {
      const ValueIndex written = reads(order[static_cast<size_t>(write->position)])[0];
      clock.wait_until(ready_ns_[at(written)]);
      written_ns_[static_cast<size_t>(write->position)] = clock.write(bytes(written));
    }
  }
  for (const ValueIndex output : outputs_) clock.wait_until(ready_ns_[at(output)]);
  return clock.now_ns();
}

}  // namespace remat
