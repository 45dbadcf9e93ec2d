// SPDX-License-Identifier: Apache-2.0
#include "remat/core/rewrite.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "remat/core/error.h"

namespace remat {
namespace {

using detail::concat;

// Two passes: the first binds every operand to an instance and notes each instance's last use, the
// second writes the steps with the frees that follow from those uses.
class Rewriter {
 public:
  Rewriter(const Graph& graph, std::span<const OpId> order, const RewriteOptions& options)
      : graph_(graph), order_(order), options_(options) {
    copies_.resize(graph.storages.size(), 0);
    for (const Storage& storage : graph.storages) {
      first_value_.push_back(holders_.size());
      holders_.resize(holders_.size() + storage.changers.size() + 1);
    }
    has_run_.resize(graph.ops.size(), false);
    for (size_t i = 0; i < graph.external_count; ++i) new_instance(static_cast<StorageId>(i), kForever);
  }

  Schedule rewrite() {
    for (position_ = 0; position_ < order_.size(); ++position_) bind(order_[position_]);
    if (const auto missing = std::find(has_run_.begin(), has_run_.end(), false);
        missing != has_run_.end()) {
      const Op& op = graph_.ops[static_cast<size_t>(missing - has_run_.begin())];
      throw Error(concat("[rewrite] op ", op.name, " is not in the order; expected every op once"));
    }
    for (const StorageId id : graph_.outputs) {
      if (!graph_.storage(id).external()) {
        use({id, graph_.last_version(id)}, "the step's output", kForever);
      }
    }
    write_steps();
    return std::move(schedule_);
  }

 private:
  static constexpr size_t kForever = std::numeric_limits<size_t>::max();
  static constexpr size_t kMostOperands = std::numeric_limits<int32_t>::max();

  InstanceId new_instance(StorageId storage, size_t last_use) {
    const InstanceId id = static_cast<InstanceId>(schedule_.instances.size());
    schedule_.instances.push_back({storage, copies_[index(storage)]++, kNoInstance});
    last_use_.push_back(last_use);
    holders({storage, 0}).push_back(id);
    return id;
  }

  std::vector<InstanceId>& holders(const Value& value) {
    return holders_[first_value_[index(value.storage)] + static_cast<size_t>(value.version)];
  }

  InstanceId use(const Value& value, const std::string& user, size_t until) {
    const std::vector<InstanceId>& instances = holders(value);
    if (instances.empty()) {
      throw Error(concat("[rewrite] at position ", position_, ", ", user, " needs ",
                         graph_.storage(value.storage).name, " at version ", value.version,
                         ", which no copy holds there; expected its creator and its updates before"));
    }
    size_t& last = last_use_[index(instances.back())];
    last = std::max(last, until);
    return instances.back();
  }

  // Moves the copy in which the value was made last on to the next version.
  InstanceId advance(const Value& value, const std::string& user, size_t until) {
    const InstanceId id = use(value, user, until);
    holders(value).pop_back();
    holders({value.storage, value.version + 1}).push_back(id);
    return id;
  }

  void bind(OpId id) {
    if (index(id) >= graph_.ops.size()) {
      throw Error(concat("[rewrite] op number ", index(id), " at position ", position_,
                         "; expected less than ", graph_.ops.size()));
    }
    const Op& op = graph_.op(id);
    const bool first = !has_run_[index(id)];
    if (first) {
      check_mutual_order(id, op);
    } else if (!graph_.rerunnable(id)) {
      throw Error(concat("[rewrite] op ", op.name, " stands twice; it must not be re-run"));
    }
    has_run_[index(id)] = true;
    if (schedule_.operands.size() > kMostOperands) {
      throw Error("[rewrite] the order is too long: more operands than 31 bits can count");
    }
    schedule_.steps.push_back({.kind = first ? StepKind::run : StepKind::recompute,
                               .op = id,
                               .first_operand = static_cast<int32_t>(schedule_.operands.size()),
                               .instance = kNoInstance});
    for (const Value& value : op.reads) {
      schedule_.operands.push_back(use(value, op.name, position_));
    }
    for (const Value& value : op.updates) {
      schedule_.operands.push_back(advance(value, op.name, position_));
    }
    for (const StorageId storage : op.creates) {
      schedule_.operands.push_back(new_instance(storage, position_));
    }
    if (first) {
      for (const Value& value : op.effects) advance(value, op.name, kForever);
    }
  }

  // The generator is one sequence, collectives pair up by order, and so on: among first runs the
  // ops of each of these classes stay in the order of the graph.
  void check_mutual_order(OpId id, const Op& op) {
    const auto check = [&](bool belongs, int64_t& latest, const char* what) {
      if (!belongs) return;
      if (static_cast<int64_t>(index(id)) < latest) {
        throw Error(concat("[rewrite] op ", op.name, " runs after ",
                           graph_.ops[static_cast<size_t>(latest)].name, "; expected ", what,
                           " in the order of the graph"));
      }
      latest = static_cast<int64_t>(index(id));
    };
    check(op.random, latest_random_, "random ops");
    check(op.once, latest_once_, "once ops");
    check(!op.effects.empty(), latest_effect_, "ops with effects");
  }

  void write_steps() {
    std::vector<ScheduleStep> bound = std::move(schedule_.steps);
    schedule_.steps.clear();
    schedule_.steps.reserve(bound.size() * 2);
    std::vector<bool> gone(schedule_.instances.size(), false);
    for (size_t position = 0; position < bound.size(); ++position) {
      const ScheduleStep& step = bound[position];
      if (options_.reuse) take_places(step, position, gone);
      schedule_.steps.push_back(step);
      free_what_ends(schedule_.reads(graph_, step), position, gone);
      free_what_ends(schedule_.updates(graph_, step), position, gone);
      free_what_ends(schedule_.creates(graph_, step), position, gone);
    }
  }

  void take_places(const ScheduleStep& step, size_t position, std::vector<bool>& gone) {
    const Op& op = graph_.op(step.op);
    const auto read = schedule_.reads(graph_, step);
    const auto created = schedule_.creates(graph_, step);
    for (const Reuse& reuse : op.reuse) {
      for (size_t c = 0; c < op.creates.size(); ++c) {
        Instance& result = schedule_.instances[index(created[c])];
        if (op.creates[c] != reuse.result || result.in_place_of != kNoInstance) continue;
        for (size_t r = 0; r < op.reads.size(); ++r) {
          const InstanceId source = read[r];
          if (op.reads[r].storage != reuse.source) continue;
          if (gone[index(source)] || last_use_[index(source)] != position) continue;
          result.in_place_of = source;
          gone[index(source)] = true;
          break;
        }
      }
    }
  }

  void free_what_ends(std::span<const InstanceId> instances, size_t position,
                      std::vector<bool>& gone) {
    for (const InstanceId id : instances) {
      if (gone[index(id)] || last_use_[index(id)] != position) continue;
      gone[index(id)] = true;
      schedule_.steps.push_back(
          {.kind = StepKind::free, .op = {}, .first_operand = 0, .instance = id});
    }
  }

  const Graph& graph_;
  std::span<const OpId> order_;
  RewriteOptions options_;
  Schedule schedule_;
  std::vector<int32_t> copies_;        // by storage: instances so far
  std::vector<size_t> first_value_;    // by storage: its version 0 in holders_
  std::vector<std::vector<InstanceId>> holders_;  // by value: copies that hold it, last made last
  std::vector<size_t> last_use_;           // by instance: position in the order
  std::vector<bool> has_run_;              // by op
  size_t position_ = 0;
  int64_t latest_random_ = -1;
  int64_t latest_once_ = -1;
  int64_t latest_effect_ = -1;
};

}  // namespace

Schedule rewrite(const Graph& graph, std::span<const OpId> order, const RewriteOptions& options) {
  return Rewriter(graph, order, options).rewrite();
}

}  // namespace remat
