// SPDX-License-Identifier: Apache-2.0
#include "remat/core/schedule.h"

namespace remat {
namespace {

std::span<const InstanceId> slice(const Schedule& schedule, const ScheduleStep& step, size_t skip,
                                  size_t count) {
  return std::span(schedule.operands).subspan(static_cast<size_t>(step.first_operand) + skip, count);
}

}  // namespace

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
