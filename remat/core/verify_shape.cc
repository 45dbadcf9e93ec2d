// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify_shape.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "remat/core/error.h"

namespace remat::detail {
namespace {

// Every check returns false once it has noted a violation.
class ShapeCheck {
 public:
  ShapeCheck(const Graph& graph, const Schedule& schedule) : graph_(graph), schedule_(schedule) {}

  std::optional<Violation> check() {
    if (instances_fit() && steps_fit()) return std::nullopt;
    return std::move(violation_);
  }

 private:
  bool fail(ViolationKind kind, std::string subject, std::string reason) {
    violation_ = {kind, position_, std::move(subject), std::move(reason)};
    return false;
  }

  bool known(InstanceId id) const { return index(id) < schedule_.instances.size(); }
  int64_t last_instance() const { return static_cast<int64_t>(schedule_.instances.size()) - 1; }

  bool instances_fit() {
    const std::vector<Instance>& instances = schedule_.instances;
    if (instances.size() < graph_.external_count) {
      return fail(
          ViolationKind::malformed, "",
          concat("the schedule has ", instances.size(), " instances; expected at least the ",
                 graph_.external_count, " externals of the graph"));
    }
    for (size_t i = 0; i < instances.size(); ++i) {
      if (index(instances[i].storage) >= graph_.storage_count()) {
        return fail(ViolationKind::malformed, "",
                    concat("instance ", i, " is a copy of storage ",
                           static_cast<int64_t>(instances[i].storage), "; expected 0 to ",
                           static_cast<int64_t>(graph_.storage_count()) - 1));
      }
      if (i < graph_.external_count &&
          instances[i] != Instance{static_cast<StorageId>(i), 0, kNoInstance}) {
        return fail(
            ViolationKind::malformed, graph_.storages[i].name,
            concat("instance ", i, " is ", instance_name(graph_, instances[i]),
                   "; expected the external ", graph_.storages[i].name, " in no other's place"));
      }
    }
    return true;
  }

  bool steps_fit() {
    for (; position_ < schedule_.steps.size(); ++position_) {
      const ScheduleStep& step = schedule_.steps[position_];
      switch (step.kind) {
        case StepKind::run:
        case StepKind::recompute:
        case StepKind::pack:
        case StepKind::unpack:
        case StepKind::offload:
        case StepKind::prefetch:
          if (!execution_fits(step)) return false;
          continue;
        case StepKind::free:
          if (!free_fits(step.instance)) return false;
          continue;
      }
      return fail(ViolationKind::malformed, "",
                  concat("the step is of kind ", static_cast<int>(step.kind),
                         "; expected 0 to ", kStepKindCount - 1));
    }
    return true;
  }

  bool free_fits(InstanceId id) {
    if (known(id)) return true;
    return fail(ViolationKind::unknown_op, "",
                concat("the step frees instance ", static_cast<int64_t>(id), "; expected 0 to ",
                       last_instance()));
  }

  bool execution_fits(const ScheduleStep& step) {
    if (index(step.op) >= graph_.op_count()) {
      return fail(ViolationKind::unknown_op, "",
                  concat("the step names op ", static_cast<int64_t>(step.op), "; expected 0 to ",
                         static_cast<int64_t>(graph_.op_count()) - 1));
    }
    const Op& op = graph_.op(step.op);
    const StepKind expected = step_kind_of(graph_, step.op);
    const bool again = expected == StepKind::run && step.kind == StepKind::recompute;
    if (step.kind != expected && !again) {
      return fail(ViolationKind::malformed, op.name,
                  concat("the step is ", name(step.kind), " of something else; expected ",
                         name(expected)));
    }
    const size_t count = op.reads.size() + op.updates.size() + op.creates.size();
    const size_t available = schedule_.operands.size();
    const size_t first = static_cast<size_t>(step.first_operand);
    if (step.first_operand < 0 || first > available || count > available - first) {
      return fail(ViolationKind::malformed, op.name,
                  concat("its ", count, " operands start at ", step.first_operand,
                         "; expected them within the ", available, " of the schedule"));
    }
    for (const InstanceId id : std::span(schedule_.operands).subspan(first, count)) {
      if (known(id)) continue;
      return fail(ViolationKind::unknown_op, op.name,
                  concat("an operand is instance ", static_cast<int64_t>(id), "; expected 0 to ",
                         last_instance()));
    }
    for (const InstanceId id : schedule_.creates(graph_, step)) {
      const Instance& result = schedule_.instances[index(id)];
      if (result.in_place_of == kNoInstance || known(result.in_place_of)) continue;
      return fail(
          ViolationKind::unknown_op, op.name,
          concat(instance_name(graph_, result), " takes the place of instance ",
                 static_cast<int64_t>(result.in_place_of), "; expected 0 to ", last_instance()));
    }
    return true;
  }

  const Graph& graph_;
  const Schedule& schedule_;
  size_t position_ = 0;
  Violation violation_;
};

}  // namespace

std::optional<Violation> shape_violation(const Graph& graph, const Schedule& schedule) {
  return ShapeCheck(graph, schedule).check();
}

}  // namespace remat::detail
