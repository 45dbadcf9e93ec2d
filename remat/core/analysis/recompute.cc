// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/recompute.h"

#include <algorithm>
#include <utility>

#include "remat/core/analysis/operands.h"
#include "remat/core/error.h"

namespace remat {
namespace {

class OrderBuilder {
 public:
  OrderBuilder(const Graph& graph, const Uses& uses, std::span<const Drop> drops,
               const RecomputeOptions& options)
      : graph_(graph), uses_(uses), options_(options) {
    remembered_.resize(graph.storages.size(), kForgotten);
    copies_.resize(graph.storages.size());
    rebuilt_to_.resize(graph.storages.size(), kNotRebuilt);
    in_block_.resize(graph.ops.size(), false);
    drops_after_.resize(graph.ops.size());
    for (const Drop& drop : drops) drops_after_[index(drop.after)].push_back(drop.storage);
    hold_sources(drops);
    for (size_t i = 0; i < graph.external_count; ++i) {
      remembered_[i] = 0;
      copies_[i] = {0};
    }
  }

  Recomputation build() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      now_ = static_cast<OpId>(i);
      make_again(missing_values(graph_.op(now_)));
      if (static_cast<int64_t>(result_.order.size()) >= options_.max_runs) {
        result_.complete = false;
        break;
      }
      run(now_, true);
      for (const Value& value : graph_.op(now_).updates) {
        remembered_[index(value.storage)] = value.version + 1;
      }
      for (const Value& value : graph_.op(now_).effects) {
        remembered_[index(value.storage)] = value.version + 1;
      }
      for (const StorageId id : graph_.op(now_).creates) remembered_[index(id)] = 0;
      for (const StorageId id : drops_after_[i]) remembered_[index(id)] = kForgotten;
    }
    return std::move(result_);
  }

 private:
  static constexpr int32_t kForgotten = -1;
  static constexpr int32_t kNotRebuilt = -1;

  void hold_sources(std::span<const Drop> drops) {
    held_to_the_end_.resize(graph_.storages.size(), false);
    for (size_t s = 0; s < graph_.storages.size(); ++s) {
      held_to_the_end_[s] = options_.hold_sources_from && !uses_.of[s].empty() &&
                            uses_.of[s].back() >= *options_.hold_sources_from;
    }
    for (const Drop& drop : drops) held_to_the_end_[index(drop.storage)] = false;
    for (size_t s = 0; s < graph_.storages.size(); ++s) {
      if (graph_.storages[s].external() || graph_.storages[s].output) held_to_the_end_[s] = true;
    }
  }

  // Whether the plan means to have this value at hand. Past its own last use a storage counts as
  // gone unless it is held for re-runs: that costs memory, and is for the caller to decide.
  bool at_hand(const Value& value) const {
    const size_t s = index(value.storage);
    if (remembered_[s] != value.version) return false;
    return held_to_the_end_[s] || (!uses_.of[s].empty() && uses_.of[s].back() >= now_);
  }

  // Whether any copy holds the value, so that reading it is legal, meant or not.
  bool held(const Value& value) const {
    const std::vector<int32_t>& versions = copies_[index(value.storage)];
    return std::find(versions.begin(), versions.end(), value.version) != versions.end();
  }

  std::vector<Value> missing_values(const Op& op) const {
    std::vector<Value> missing;
    const auto look = [&](const Value& value) {
      if (!at_hand(value)) missing.push_back(value);
    };
    std::for_each(op.reads.begin(), op.reads.end(), look);
    std::for_each(op.updates.begin(), op.updates.end(), look);
    return missing;
  }

  void make_again(const std::vector<Value>& missing) {
    if (missing.empty()) return;
    if (collect(missing)) {
      emit_block(missing);
    } else {
      // Together they cannot be had; one by one some of them may.
      for (const Value& value : missing) {
        if (missing.size() > 1 && collect({value})) emit_block({value});
        remembered_[index(value.storage)] = value.version;
      }
    }
    clear_block();
  }

  // Finds the ops of the block that makes `targets`. False if it needs something that cannot be had.
  bool collect(const std::vector<Value>& targets) {
    clear_block();
    for (const Value& target : targets) wanted_.push_back({target, false});
    while (!wanted_.empty()) {
      const Wanted wanted = wanted_.back();
      wanted_.pop_back();
      if (!want(wanted)) {
        wanted_.clear();
        return false;
      }
    }
    return true;
  }

  struct Wanted {
    Value value;
    bool fresh;  // to be overwritten: must be a copy of this block's own
  };

  bool want(const Wanted& wanted) {
    const Value& value = wanted.value;
    const size_t s = index(value.storage);
    if (!wanted.fresh && at_hand(value)) return true;
    if (rebuilt_to_[s] >= value.version) return true;
    if (graph_.storages[s].external()) return held(value);
    const int32_t first = rebuilt_to_[s] + 1;
    const auto op_making = [&](int32_t version) {
      return maker(graph_, {value.storage, version});
    };
    for (int32_t version = first; version <= value.version; ++version) {
      if (!graph_.rerunnable(op_making(version))) return !wanted.fresh && held(value);
    }
    rebuilt(s, value.version);
    for (int32_t version = first; version <= value.version; ++version) {
      add_to_block(op_making(version));
    }
    return true;
  }

  void rebuilt(size_t storage, int32_t version) {
    if (rebuilt_to_[storage] == kNotRebuilt) rebuilt_.push_back(static_cast<StorageId>(storage));
    rebuilt_to_[storage] = std::max(rebuilt_to_[storage], version);
  }

  void add_to_block(OpId id) {
    if (in_block_[index(id)]) return;
    in_block_[index(id)] = true;
    block_.push_back(id);
    const Op& op = graph_.op(id);
    for (const Value& value : op.reads) wanted_.push_back({value, false});
    for (const Value& value : op.updates) {
      // The op's other results come along; their earlier versions must be this block's own too.
      wanted_.push_back({value, true});
      wanted_.push_back({{value.storage, value.version + 1}, true});
    }
    for (const StorageId created : op.creates) rebuilt(index(created), 0);
  }

  void emit_block(const std::vector<Value>& targets) {
    std::sort(block_.begin(), block_.end());
    for (const OpId id : block_) run(id, false);
    for (const Value& target : targets) remembered_[index(target.storage)] = target.version;
    if (!options_.share) return;
    for (const StorageId id : rebuilt_) {
      if (remembered_[index(id)] == kForgotten) remembered_[index(id)] = rebuilt_to_[index(id)];
    }
  }

  void clear_block() {
    for (const OpId id : block_) in_block_[index(id)] = false;
    for (const StorageId id : rebuilt_) rebuilt_to_[index(id)] = kNotRebuilt;
    block_.clear();
    rebuilt_.clear();
  }

  // Appends the op and does to the copies what rewrite will do: updates move the newest copy that
  // holds the version, creations add a copy.
  void run(OpId id, bool first) {
    result_.order.push_back(id);
    const Op& op = graph_.op(id);
    const auto advance = [&](const Value& value) {
      std::vector<int32_t>& versions = copies_[index(value.storage)];
      const auto newest = std::find(versions.rbegin(), versions.rend(), value.version);
      REMAT_ASSERT(newest != versions.rend());
      ++*newest;
    };
    std::for_each(op.updates.begin(), op.updates.end(), advance);
    if (first) std::for_each(op.effects.begin(), op.effects.end(), advance);
    for (const StorageId created : op.creates) copies_[index(created)].push_back(0);
  }

  const Graph& graph_;
  const Uses& uses_;
  RecomputeOptions options_;
  Recomputation result_;
  OpId now_{};                                      // the op of the given order that comes next
  std::vector<int32_t> remembered_;                // by storage: version at hand, or kForgotten
  std::vector<std::vector<int32_t>> copies_;        // by storage: version of each copy, oldest first
  std::vector<std::vector<StorageId>> drops_after_;  // by op
  std::vector<bool> held_to_the_end_;                // by storage
  // The block being collected.
  std::vector<Wanted> wanted_;
  std::vector<OpId> block_;
  std::vector<bool> in_block_;       // by op
  std::vector<StorageId> rebuilt_;   // storages of which the block makes a copy
  std::vector<int32_t> rebuilt_to_;  // by storage: the version that copy ends at
};

}  // namespace

Recomputation order_with_drops(const Graph& graph, const Uses& uses, std::span<const Drop> drops,
                               const RecomputeOptions& options) {
  return OrderBuilder(graph, uses, drops, options).build();
}

}  // namespace remat
