// SPDX-License-Identifier: Apache-2.0
#include "remat/core/schedule.h"

#include <array>

namespace remat {
namespace {

constexpr std::array<std::string_view, kStepKindCount> kStepKindNames = {
    "run", "recompute", "free", "pack", "unpack", "offload", "prefetch"};

std::span<const InstanceId> slice(const Schedule& schedule, const ScheduleStep& step, size_t skip,
                                  size_t count) {
  return std::span(schedule.operands).subspan(static_cast<size_t>(step.first_operand) + skip, count);
}

}  // namespace

std::string_view name(StepKind kind) { return kStepKindNames[static_cast<size_t>(kind)]; }

StepKind step_kind_of(const Graph& graph, OpId op) {
  if (!graph.is_move(op)) return StepKind::run;
  switch (graph.move(op).kind) {
    case MoveKind::pack: return StepKind::pack;
    case MoveKind::unpack: return StepKind::unpack;
    case MoveKind::offload: return StepKind::offload;
    case MoveKind::prefetch: return StepKind::prefetch;
    case MoveKind::read_packed: break;
  }
  return StepKind::run;
}

std::span<const InstanceId> Schedule::reads(const Graph& graph, const ScheduleStep& step) const {
  return slice(*this, step, 0, graph.op(step.op).reads.size());
}

std::span<const InstanceId> Schedule::updates(const Graph& graph, const ScheduleStep& step) const {
  const Op& op = graph.op(step.op);
  return slice(*this, step, op.reads.size(), op.updates.size());
}

std::span<const InstanceId> Schedule::creates(const Graph& graph, const ScheduleStep& step) const {
  const Op& op = graph.op(step.op);
  return slice(*this, step, op.reads.size() + op.updates.size(), op.creates.size());
}

std::string instance_name(const Graph& graph, const Instance& instance) {
  const std::string& storage = graph.storage(instance.storage).name;
  return instance.copy == 0 ? storage : storage + kCopyMark + std::to_string(instance.copy);
}

}  // namespace remat
