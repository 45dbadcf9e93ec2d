// SPDX-License-Identifier: Apache-2.0
#include "remat/core/rewrite.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/mutual_order.h"
#include "remat/core/reuse.h"

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
    for (size_t i = 0; i < graph.external_count; ++i)
      new_instance(static_cast<StorageId>(i), kForever);
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
      throw Error(
          concat("[rewrite] at position ", position_, ", ", user, " needs ",
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

  void check_mutual_order(OpId id, const Op& op) {
    for (size_t c = 0; c < kOrderClasses.size(); ++c) {
      if (!in_order_class(op, c)) continue;
      if (latest_[c] > id) {
        throw Error(concat("[rewrite] op ", op.name, " runs after ", graph_.op(latest_[c]).name,
                           "; expected ", kOrderClasses[c], " in the order of the graph"));
      }
      latest_[c] = id;
    }
  }

  void write_steps() {
    std::vector<ScheduleStep> bound = std::move(schedule_.steps);
    schedule_.steps.clear();
    schedule_.steps.reserve(bound.size() * 2);
    std::vector<bool> gone(schedule_.instances.size(), false);
    for (size_t position = 0; position < bound.size(); ++position) {
      const ScheduleStep& step = bound[position];
      if (options_.reuse) place_results(step, position, gone);
      schedule_.steps.push_back(step);
      free_what_ends(schedule_.reads(graph_, step), position, gone);
      free_what_ends(schedule_.updates(graph_, step), position, gone);
      free_what_ends(schedule_.creates(graph_, step), position, gone);
    }
  }

  void place_results(const ScheduleStep& step, size_t position, std::vector<bool>& gone) {
    const auto instance_of = [&](std::span<const InstanceId> instances, StorageId storage) {
      return *std::find_if(instances.begin(), instances.end(), [&](InstanceId id) {
        return schedule_.instances[index(id)].storage == storage;
      });
    };
    const auto source = [&](const Reuse& reuse) {
      return instance_of(schedule_.reads(graph_, step), reuse.source);
    };
    const auto ends = [&](const Reuse& reuse) {
      return last_use_[index(source(reuse))] == position;
    };
    take_places(std::span(graph_.op(step.op).reuse), ends, taken_);
    for (const Reuse& reuse : taken_) {
      const InstanceId result = instance_of(schedule_.creates(graph_, step), reuse.result);
      schedule_.instances[index(result)].in_place_of = source(reuse);
      gone[index(source(reuse))] = true;
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
  std::vector<int32_t> copies_;                   // by storage: instances so far
  std::vector<size_t> first_value_;               // by storage: its version 0 in holders_
  std::vector<std::vector<InstanceId>> holders_;  // by value: copies that hold it, last made last
  std::vector<size_t> last_use_;                  // by instance: position in the order
  std::vector<bool> has_run_;                     // by op
  size_t position_ = 0;
  std::array<OpId, kOrderClasses.size()> latest_{};  // by class of mutual order: its last first run
  std::vector<Reuse> taken_;                         // scratch
};

}  // namespace

Schedule rewrite(const Graph& graph, std::span<const OpId> order, const RewriteOptions& options) {
  return Rewriter(graph, order, options).rewrite();
}

}  // namespace remat
