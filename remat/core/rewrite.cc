// SPDX-License-Identifier: Apache-2.0
#include "remat/core/rewrite.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/mutual_order.h"
#include "remat/core/needed_copies.h"
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
    copies_.resize(graph.storage_count(), 0);
    for (size_t s = 0; s < graph.storage_count(); ++s) {
      first_value_.push_back(holders_.size());
      const Storage& storage = graph.storage(static_cast<StorageId>(s));
      holders_.resize(holders_.size() + storage.changers.size() + 1);
    }
    has_run_.resize(graph.ops.size(), false);
    for (size_t i = 0; i < graph.external_count; ++i)
      new_instance({static_cast<StorageId>(i), 0}, kForever);
  }

  Schedule rewrite() {
    if (graph_.channel) leave_out_needless_transfers();
    for (position_ = 0; position_ < order_.size(); ++position_) bind(order_[position_]);
    if (const auto missing = std::find(has_run_.begin(), has_run_.end(), false);
        missing != has_run_.end()) {
      const Op& op = graph_.ops[static_cast<size_t>(missing - has_run_.begin())];
      throw Error(concat("[rewrite] op ", op.name, " is not in the order; expected every op once"));
    }
    for (const Value& value : output_values(graph_)) use(value, "the step's output", kForever);
    write_steps();
    if (!writes_.empty()) number_in_order_of_steps();
    return std::move(schedule_);
  }

 private:
  static constexpr size_t kForever = std::numeric_limits<size_t>::max();
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();
  static constexpr size_t kMostOperands = std::numeric_limits<int32_t>::max();

  struct Write {
    size_t begins;    // after this position
    size_t position;  // of the offload, where it has ended
  };

  // Transfers of which nothing needs the result.
  void leave_out_needless_transfers() {
    NeededCopies needed(holders_.size());
    for (const Value& value : output_values(graph_)) needed.read(number(value));
    for (size_t i = order_.size(); i-- > 0;) {
      const OpId id = order_[i];
      if (index(id) < graph_.op_count()) {
        const Op& op = graph_.op(id);
        const int32_t version = graph_.created_version(id);
        if (graph_.is_transfer(id) && !needed.needed(number({op.creates[0], version}))) continue;
        for (const StorageId created : op.creates) needed.make(number({created, version}));
        for (const Value& value : op.updates) {
          needed.change(number(value), number({value.storage, value.version + 1}));
        }
        for (const Value& value : op.reads) needed.read(number(value));
      }
      needed_.push_back(id);
    }
    std::reverse(needed_.begin(), needed_.end());
    order_ = needed_;
  }

  InstanceId new_instance(const Value& value, size_t last_use) {
    const InstanceId id = static_cast<InstanceId>(schedule_.instances.size());
    schedule_.instances.push_back(
        {value.storage, copies_[index(value.storage)]++, kNoInstance});
    last_use_.push_back(last_use);
    offloaded_at_.push_back(kNever);
    holders(value).push_back(id);
    return id;
  }

  size_t number(const Value& value) const {
    return first_value_[index(value.storage)] + static_cast<size_t>(value.version);
  }
  std::vector<InstanceId>& holders(const Value& value) { return holders_[number(value)]; }

  InstanceId use(const Value& value, const std::string& user, size_t until) {
    const std::vector<InstanceId>& instances = holders(value);
    if (instances.empty()) {
      throw Error(
          concat("[rewrite] at position ", position_, ", ", user, " needs ",
                 graph_.storage(value.storage).name, " at version ", value.version,
                 ", which no copy holds there; expected its creator and its updates before"));
    }
    const InstanceId id = instances.back();
    if (offloaded_at_[index(id)] != kNever) {
      throw Error(concat("[rewrite] at position ", position_, ", ", user, " needs ",
                         instance_name(graph_, schedule_.instances[index(id)]),
                         ", which was offloaded at position ", offloaded_at_[index(id)],
                         "; expected a prefetch or its creator in between"));
    }
    size_t& last = last_use_[index(id)];
    last = std::max(last, until);
    return id;
  }

  // Moves the copy in which the value was made last on to the next version.
  InstanceId advance(const Value& value, const std::string& user, size_t until) {
    const InstanceId id = use(value, user, until);
    holders(value).pop_back();
    holders({value.storage, value.version + 1}).push_back(id);
    return id;
  }

  void bind(OpId id) {
    if (index(id) >= graph_.op_count()) {
      throw Error(concat("[rewrite] op number ", index(id), " at position ", position_,
                         "; expected less than ", graph_.op_count()));
    }
    const Op& op = graph_.op(id);
    const StepKind kind = step_kind(id, op);
    if (schedule_.operands.size() > kMostOperands) {
      throw Error("[rewrite] the order is too long: more operands than 31 bits can count");
    }
    schedule_.steps.push_back({.kind = kind,
                               .op = id,
                               .first_operand = static_cast<int32_t>(schedule_.operands.size()),
                               .instance = kNoInstance});
    for (const Value& value : op.reads) {
      const size_t before = kind == StepKind::offload ? last_touch(value) : 0;
      schedule_.operands.push_back(use(value, op.name, position_));
      if (kind == StepKind::offload) offload(schedule_.operands.back(), before);
    }
    for (const Value& value : op.updates) {
      schedule_.operands.push_back(advance(value, op.name, position_));
    }
    for (const StorageId storage : op.creates) {
      const Value created{storage, graph_.created_version(id)};
      schedule_.operands.push_back(new_instance(created, position_));
    }
    if (kind == StepKind::run) {
      for (const Value& value : op.effects) advance(value, op.name, kForever);
    }
  }

  // Of an op also checks and notes that it runs.
  StepKind step_kind(OpId id, const Op& op) {
    const StepKind kind = step_kind_of(graph_, id);
    if (kind != StepKind::run) return kind;
    const OpId original = graph_.original(id);
    const bool first = !has_run_[index(original)];
    if (first) {
      check_mutual_order(original, op);
    } else if (!graph_.rerunnable(original)) {
      throw Error(concat("[rewrite] op ", op.name, " stands twice; it must not be re-run"));
    }
    has_run_[index(original)] = true;
    return first ? StepKind::run : StepKind::recompute;
  }

  // The last position so far at which the copy that holds the value was made or used.
  size_t last_touch(const Value& value) {
    return holders(value).empty() ? 0 : last_use_[index(holders(value).back())];
  }

  // The write begins after the position `begins`.
  void offload(InstanceId id, size_t begins) {
    offloaded_at_[index(id)] = position_;
    writes_.push_back({.begins = begins, .position = position_});
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
    // In the order in which they begin; of those that begin at once, the one that must end first.
    std::stable_sort(writes_.begin(), writes_.end(),
                     [](const Write& a, const Write& b) { return a.begins < b.begins; });
    auto write = writes_.begin();
    for (size_t position = 0; position < bound.size(); ++position) {
      const ScheduleStep& step = bound[position];
      if (step.kind != StepKind::offload) {
        if (options_.reuse) place_results(step, position, gone);
        schedule_.steps.push_back(step);
      }
      for (; write != writes_.end() && write->begins == position; ++write) {
        schedule_.steps.push_back(bound[write->position]);
      }
      free_what_ends(schedule_.reads(graph_, step), position, gone);
      free_what_ends(schedule_.updates(graph_, step), position, gone);
      free_what_ends(schedule_.creates(graph_, step), position, gone);
    }
  }

  // An offload is bound where it ends and stands where it begins. Numbers the instances, and lists the
  // operands, in the order of the steps, as in schedules without.
  void number_in_order_of_steps() {
    std::vector<InstanceId> number(schedule_.instances.size(), kNoInstance);
    Schedule ordered;
    const auto mention = [&](InstanceId id) {
      InstanceId& known = number[index(id)];
      if (known == kNoInstance) {
        known = static_cast<InstanceId>(ordered.instances.size());
        ordered.instances.push_back(schedule_.instances[index(id)]);
      }
      return known;
    };
    for (size_t i = 0; i < graph_.external_count; ++i) mention(static_cast<InstanceId>(i));
    for (ScheduleStep step : schedule_.steps) {
      if (step.kind == StepKind::free) {
        step.instance = mention(step.instance);
      } else {
        const Op& op = graph_.op(step.op);
        const size_t count = op.reads.size() + op.updates.size() + op.creates.size();
        const auto operands = std::span(schedule_.operands)
                                  .subspan(static_cast<size_t>(step.first_operand), count);
        step.first_operand = static_cast<int32_t>(ordered.operands.size());
        for (const InstanceId id : operands) ordered.operands.push_back(mention(id));
      }
      ordered.steps.push_back(step);
    }
    for (Instance& instance : ordered.instances) {
      if (instance.in_place_of != kNoInstance) {
        instance.in_place_of = number[index(instance.in_place_of)];
      }
    }
    schedule_ = std::move(ordered);
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
    if (graph_.op(step.op).reuse.empty()) return;
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
  std::vector<OpId> needed_;  // behind order_, where there is a channel
  RewriteOptions options_;
  Schedule schedule_;
  std::vector<int32_t> copies_;                   // by storage: instances so far
  std::vector<size_t> first_value_;               // by storage: its version 0 in holders_
  std::vector<std::vector<InstanceId>> holders_;  // by value: copies that hold it, last made last
  std::vector<size_t> last_use_;                  // by instance: position in the order
  std::vector<size_t> offloaded_at_;              // by instance: position, or kNever
  std::vector<Write> writes_;
  std::vector<bool> has_run_;                     // by op
  size_t position_ = 0;
  std::array<OpId, kOrderClasses.size()> latest_{};  // by class of mutual order: its last first run
  std::vector<Reuse> taken_;                         // scratch
};

}  // namespace

Schedule rewrite(const Graph& graph, std::span<const OpId> order, const RewriteOptions& options) {
  return Rewriter(graph, order, options).rewrite();
}

std::vector<OpId> order_of(const Graph& graph, const Schedule& schedule) {
  std::vector<OpId> order;
  std::unordered_map<InstanceId, OpId> written;  // offloads that have begun
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind == StepKind::offload) {
      written[schedule.reads(graph, step)[0]] = step.op;
    } else if (step.kind != StepKind::free) {
      order.push_back(step.op);
    } else if (const auto found = written.find(step.instance); found != written.end()) {
      order.push_back(found->second);
    }
  }
  return order;
}

}  // namespace remat
