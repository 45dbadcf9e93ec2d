// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/terms.h"
#include "remat/core/verify_copies.h"
#include "remat/core/verify_runs.h"
#include "remat/core/verify_shape.h"

namespace remat {
namespace {

using detail::concat;
using detail::Copies;
using detail::Term;
using detail::Terms;
using detail::Truth;

constexpr std::array<std::string_view, kViolationKindCount> kKindNames = {
    "malformed",      "unknown_op", "wrong_operand",   "read_missing",    "wrong_version",
    "created_twice",  "run_twice",  "recompute_first", "once_recomputed", "order_changed",
    "bad_reuse",      "bad_free",   "missing_free",    "op_missing",      "output_wrong",
    "external_wrong", "over_budget", "write_disturbed"};

// Runs a schedule whose every number names something on terms. Every check returns false once it has noted a violation.
class Checker {
 public:
  Checker(const Graph& graph, const Schedule& schedule, int64_t budget_bytes)
      : graph_(graph),
        schedule_(schedule),
        budget_bytes_(budget_bytes),
        truth_(run_given_order(graph, terms_)),
        generator_(terms_.generator()),
        runs_(graph),
        state_at_run_(graph.ops.size()),
        copies_(graph, schedule) {}

  std::optional<Violation> check() {
    if (begin() && all_steps() && end()) return std::nullopt;
    return std::move(violation_);
  }

 private:
  struct Operands {
    std::span<const InstanceId> reads, updates, creates;
  };

  bool fail(ViolationKind kind, std::string subject, std::string reason) {
    violation_ = {kind, position_, std::move(subject), std::move(reason)};
    return false;
  }

  const Instance& instance(InstanceId id) const { return schedule_.instances[index(id)]; }
  const Storage& storage_of(InstanceId id) const { return graph_.storage(instance(id).storage); }
  std::string shown(InstanceId id) const { return instance_name(graph_, instance(id)); }

  bool begin() {
    for (size_t i = 0; i < graph_.external_count; ++i) {
      copies_.begin(static_cast<InstanceId>(i), terms_.external(i));
    }
    return within_budget("", 0);
  }

  bool all_steps() {
    for (; position_ < schedule_.steps.size(); ++position_) {
      const ScheduleStep& step = schedule_.steps[position_];
      if (!(step.kind == StepKind::free ? free(step.instance) : execute(step))) return false;
    }
    return true;
  }

  static bool is_run(const ScheduleStep& step) {
    return step.kind == StepKind::run || step.kind == StepKind::recompute;
  }

  bool execute(const ScheduleStep& step) {
    const Op& op = graph_.op(step.op);
    const Operands operands{schedule_.reads(graph_, step), schedule_.updates(graph_, step),
                            schedule_.creates(graph_, step)};
    if (is_run(step)) {
      if (!may_execute(step, op) || !inputs_right(step, op, operands)) return false;
    } else if (!source_right(step, op, operands.reads[0])) {
      return false;
    }
    if (!creates_right(op, operands) || !reuse_right(op, operands)) return false;
    if (!fits_in_memory(op, operands)) return false;
    if (!is_run(step)) {
      move(step, operands.reads[0], operands.creates[0]);
      return true;
    }
    if (step.kind == StepKind::run && !effects_right(step, op)) return false;
    perform(step, op, operands);
    return true;
  }

  bool may_execute(const ScheduleStep& step, const Op& op) {
    const OpId id = graph_.original(step.op);
    auto objection = step.kind == StepKind::run ? runs_.run(id) : runs_.recompute(id);
    return !objection || fail(objection->kind, op.name, std::move(objection->reason));
  }

  // Whether what the move takes is there. A value is packed at its last version only: the rule may lose bits of
  // any other. If another move takes a wrong version, the op that uses what it brings back is rejected.
  bool source_right(const ScheduleStep& step, const Op& op, InstanceId source) {
    if (step.kind == StepKind::pack) {
      return input_right(op, op.reads[0], source, truth_.last[index(op.reads[0].storage)]);
    }
    if (!is_copy_of(op, op.reads[0].storage, source) || !is_resident(op, source)) return false;
    if (step.kind != StepKind::offload || !copies_[source].written) return true;
    return fail(ViolationKind::write_disturbed, op.name,
                concat(shown(source), " is offloaded twice; expected a free of it after the first"));
  }

  bool inputs_right(const ScheduleStep& step, const Op& op, const Operands& operands) {
    const std::vector<Term>& expected = truth_.inputs[index(graph_.original(step.op))];
    for (size_t i = 0; i < op.reads.size(); ++i) {
      if (!input_right(op, op.reads[i], operands.reads[i], expected[i])) return false;
    }
    for (size_t i = 0; i < op.updates.size(); ++i) {
      const Term before = expected[op.reads.size() + i];
      if (!input_right(op, op.updates[i], operands.updates[i], before)) return false;
      if (!copies_[operands.updates[i]].written) continue;
      return fail(ViolationKind::write_disturbed, op.name,
                  concat("it updates ", shown(operands.updates[i]),
                         ", which is being offloaded; expected a free of it first"));
    }
    return true;
  }

  bool is_resident(const Op& op, InstanceId id) {
    const Copies::State state = copies_[id].state;
    if (state == Copies::State::resident) return true;
    return fail(ViolationKind::read_missing, op.name,
                concat("it needs ", shown(id), ", which ", detail::history(state),
                       "; expected it to be resident"));
  }

  bool input_right(const Op& op, const Value& value, InstanceId id, Term expected) {
    if (!is_copy_of(op, value.storage, id) || !is_resident(op, id)) return false;
    if (copies_.value_in(id) != expected) {
      return fail(ViolationKind::wrong_version, op.name,
                  concat(shown(id), " holds another value; expected that of ",
                         graph_.storage(value.storage).name, " at version ", value.version));
    }
    return true;
  }

  bool is_copy_of(const Op& op, StorageId storage, InstanceId id) {
    if (instance(id).storage == storage) return true;
    return fail(
        ViolationKind::wrong_operand, op.name,
        concat("an operand is ", shown(id), "; expected a copy of ", graph_.storage(storage).name));
  }

  bool creates_right(const Op& op, const Operands& operands) {
    for (size_t i = 0; i < op.creates.size(); ++i) {
      const InstanceId id = operands.creates[i];
      if (!is_copy_of(op, op.creates[i], id)) return false;
      // By name: two entries of the table that print alike are one instance to any reader.
      const auto key = std::pair(instance(id).storage, instance(id).copy);
      const uint64_t name =
          (uint64_t{static_cast<uint32_t>(key.first)} << 32) | static_cast<uint32_t>(key.second);
      if (copies_[id].state != Copies::State::not_created || !created_.insert(name).second) {
        return fail(ViolationKind::created_twice, op.name,
                    concat("it creates ", shown(id), ", which was created before; expected a ",
                           "fresh copy"));
      }
    }
    return true;
  }

  bool reuse_right(const Op& op, const Operands& operands) {
    for (size_t i = 0; i < operands.creates.size(); ++i) {
      const InstanceId result = operands.creates[i];
      const InstanceId source = instance(result).in_place_of;
      if (source == kNoInstance) continue;
      if (const std::string objection = reuse_objection(op, operands, result, source);
          !objection.empty()) {
        return fail(ViolationKind::bad_reuse, op.name,
                    concat(shown(result), " takes the place of ", shown(source), ", ", objection));
      }
      for (size_t other = 0; other < i; ++other) {
        if (instance(operands.creates[other]).in_place_of != source) continue;
        return fail(ViolationKind::bad_reuse, op.name,
                    concat(shown(result), " and ", shown(operands.creates[other]),
                           " both take the place of ", shown(source), "; expected one of them"));
      }
    }
    return true;
  }

  std::string reuse_objection(const Op& op, const Operands& operands, InstanceId result,
                              InstanceId source) const {
    const Reuse pair{instance(result).storage, instance(source).storage};
    if (std::find(op.reuse.begin(), op.reuse.end(), pair) == op.reuse.end()) {
      return "a pair that the op does not list; expected one of its reuse=";
    }
    const auto among = [&](std::span<const InstanceId> ids) {
      return std::find(ids.begin(), ids.end(), source) != ids.end();
    };
    if (!among(operands.reads)) return "which this step does not read; expected one of its reads";
    if (among(operands.updates)) return "which this step updates; expected it to be only read";
    if (storage_of(source).external()) return "an external; expected something internal";
    if (copies_[source].written) return "which is being offloaded; expected a free of it first";
    if (copies_.last_of_output(source, position_)) {
      return "the last copy of an output; expected the output to survive";
    }
    return "";
  }

  bool fits_in_memory(const Op& op, const Operands& operands) {
    int64_t added = op.workspace_bytes;
    for (const InstanceId result : operands.creates) {
      const int64_t bytes = storage_of(result).bytes;
      const InstanceId source = instance(result).in_place_of;
      added += source == kNoInstance ? bytes : bytes - std::min(bytes, storage_of(source).bytes);
    }
    return within_budget(op.name, added);
  }

  bool within_budget(const std::string& op, int64_t added) {
    const int64_t resident = copies_.resident_bytes();
    int64_t sum = 0;
    const bool overflow = __builtin_add_overflow(resident, added, &sum);
    if (!overflow && sum <= budget_bytes_) return true;
    return fail(ViolationKind::over_budget, op,
                concat(resident, " bytes are resident and ", added, " are added; expected at most ",
                       budget_bytes_, " together"));
  }

  bool effects_right(const ScheduleStep& step, const Op& op) {
    for (size_t i = 0; i < op.effects.size(); ++i) {
      const Value& value = op.effects[i];
      const Term before = truth_.effects[index(graph_.original(step.op))][i];
      if (copies_[static_cast<InstanceId>(value.storage)].content == before) continue;
      return fail(ViolationKind::external_wrong, op.name,
                  concat("its effect falls on ", graph_.storage(value.storage).name,
                         " with another value; expected version ", value.version));
    }
    return true;
  }

  // Packing and offloading put a value into another form, the others take it out.
  void move(const ScheduleStep& step, InstanceId from, InstanceId to) {
    if (step.kind == StepKind::pack || step.kind == StepKind::offload) {
      const Term value = copies_[from].content;
      copies_.begin(to, terms_.in_form(index(instance(to).storage), value), value);
    } else {
      copies_.begin(to, copies_[from].within);
    }
    if (step.kind == StepKind::offload) copies_[from].written = true;
  }

  void perform(const ScheduleStep& step, const Op& op, const Operands& operands) {
    const bool first = step.kind == StepKind::run;
    const size_t id_of_op = index(graph_.original(step.op));
    if (first) state_at_run_[id_of_op] = generator_;
    std::vector<Term> inputs;
    for (const InstanceId id : operands.reads) inputs.push_back(copies_.value_in(id));
    for (const InstanceId id : operands.updates) inputs.push_back(copies_[id].content);
    if (op.random) inputs.push_back(state_at_run_[id_of_op]);
    const Term applied = terms_.applied(id_of_op, inputs);
    for (size_t i = 0; i < operands.updates.size(); ++i) {
      copies_[operands.updates[i]].content = terms_.updated(applied, i);
    }
    for (size_t i = 0; i < operands.creates.size(); ++i) {
      const InstanceId result = operands.creates[i];
      if (const InstanceId source = instance(result).in_place_of; source != kNoInstance) {
        copies_.end(source, Copies::State::taken);
      }
      copies_.begin(result, terms_.created(applied, i));
    }
    if (!first) return;
    for (size_t i = 0; i < op.effects.size(); ++i) {
      Term& content = copies_[static_cast<InstanceId>(op.effects[i].storage)].content;
      content = terms_.affected(applied, i, content);
    }
    if (op.random) generator_ = terms_.advanced(id_of_op, generator_);
  }

  bool free(InstanceId id) {
    if (storage_of(id).external()) {
      return fail(ViolationKind::bad_free, shown(id),
                  "an external is freed; expected it to survive the step");
    }
    if (copies_[id].state != Copies::State::resident) {
      return fail(ViolationKind::bad_free, shown(id),
                  concat("freed, but it ", detail::history(copies_[id].state),
                         "; expected it to be resident"));
    }
    if (copies_.last_of_output(id, position_)) {
      return fail(ViolationKind::bad_free, shown(id),
                  "the last copy of an output is freed; expected it to survive the step");
    }
    copies_.end(id, Copies::State::freed);
    return true;
  }

  bool end() {
    if (const auto missing = runs_.missing()) {
      return fail(ViolationKind::op_missing, graph_.op(*missing).name,
                  "the op never runs; expected every op of the graph once");
    }
    return outputs_right() && nothing_left() && externals_right();
  }

  bool outputs_right() {
    std::vector<bool> found(graph_.storages.size(), false);
    for (size_t i = graph_.external_count; i < schedule_.instances.size(); ++i) {
      const Copies::Copy& copy = copies_[static_cast<InstanceId>(i)];
      const size_t storage = index(schedule_.instances[i].storage);
      if (copy.state != Copies::State::resident || storage >= found.size()) continue;
      if (copy.content == truth_.last[storage]) found[storage] = true;
    }
    for (const StorageId id : graph_.outputs) {
      if (graph_.storage(id).external() || found[index(id)]) continue;
      return fail(ViolationKind::output_wrong, graph_.storage(id).name,
                  concat("none of its ", copies_.resident_of(id),
                         " copies at the end holds the output; expected version ",
                         graph_.last_version(id)));
    }
    return true;
  }

  bool nothing_left() {
    for (size_t i = graph_.external_count; i < schedule_.instances.size(); ++i) {
      const InstanceId id = static_cast<InstanceId>(i);
      const bool output = storage_of(id).output;
      if (copies_[id].state != Copies::State::resident) continue;
      if (output && copies_.resident_of(instance(id).storage) == 1) continue;
      return fail(ViolationKind::missing_free, shown(id),
                  output ? "one of several copies of an output that survive; expected one copy"
                         : "it survives the step and is no output; expected a free");
    }
    return true;
  }

  bool externals_right() {
    for (size_t i = 0; i < graph_.external_count; ++i) {
      if (copies_[static_cast<InstanceId>(i)].content == truth_.last[i]) continue;
      return fail(ViolationKind::external_wrong, graph_.storages[i].name,
                  concat("it ends with another value; expected version ",
                         graph_.last_version(static_cast<StorageId>(i))));
    }
    if (generator_ == truth_.generator) return true;
    return fail(ViolationKind::external_wrong, "",
                "the generator ends in another state; expected that after all random ops in the order of "
                "the graph");
  }

  const Graph& graph_;
  const Schedule& schedule_;
  int64_t budget_bytes_;
  Terms terms_;
  Truth truth_;
  Term generator_;
  detail::RunRules runs_;
  std::vector<Term> state_at_run_;        // by op: the generator's state when it ran
  Copies copies_;
  std::unordered_set<uint64_t> created_;  // storage and copy number of all that was created
  size_t position_ = 0;
  Violation violation_;
};

}  // namespace

std::string_view name(ViolationKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

std::optional<Violation> verify(const Graph& graph, const Schedule& schedule,
                                int64_t budget_bytes) {
  if (auto violation = detail::shape_violation(graph, schedule)) return violation;
  return Checker(graph, schedule, budget_bytes).check();
}

}  // namespace remat
