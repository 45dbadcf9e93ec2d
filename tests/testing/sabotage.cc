// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/sabotage.h"

#include <algorithm>

#include "tests/testing/sabotage_parts.h"

namespace remat::testing {
namespace sabotage {
namespace {

bool holds(std::span<const InstanceId> ids, InstanceId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::vector<size_t> steps_where(const Schedule& schedule,
                                const std::function<bool(const ScheduleStep&, size_t)>& wanted) {
  std::vector<size_t> found;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    if (wanted(schedule.steps[i], i)) found.push_back(i);
  }
  return found;
}

std::vector<size_t> steps_of(const Schedule& schedule, StepKind kind) {
  return steps_where(schedule, [=](const ScheduleStep& step, size_t) { return step.kind == kind; });
}

void erase_step(Schedule& schedule, size_t at) {
  schedule.steps.erase(schedule.steps.begin() + static_cast<std::ptrdiff_t>(at));
}

void insert_step(Schedule& schedule, size_t at, const ScheduleStep& step) {
  schedule.steps.insert(schedule.steps.begin() + static_cast<std::ptrdiff_t>(at), step);
}

ScheduleStep free_of(InstanceId id) {
  return {.kind = StepKind::free, .op = {}, .first_operand = 0, .instance = id};
}

bool takes_input(const Graph& graph, const Schedule& schedule, const ScheduleStep& step, InstanceId id) {
  return executes(step) &&
         (holds(schedule.reads(graph, step), id) || holds(schedule.updates(graph, step), id));
}

bool writes(const Graph& graph, const Schedule& schedule, const ScheduleStep& step, InstanceId id) {
  return executes(step) &&
         (holds(schedule.creates(graph, step), id) || holds(schedule.updates(graph, step), id));
}

bool needed_after(const Graph& graph, const Schedule& schedule, size_t position, InstanceId id) {
  for (size_t i = position + 1; i < schedule.steps.size(); ++i) {
    if (takes_input(graph, schedule, schedule.steps[i], id)) return true;
  }
  return false;
}

size_t free_position(const Schedule& schedule, InstanceId id) {
  const auto found = std::find(schedule.steps.begin(), schedule.steps.end(), free_of(id));
  return static_cast<size_t>(found - schedule.steps.begin());
}

Maybe drop_step(const Schedule& schedule, const std::vector<size_t>& candidates, Random& random) {
  const size_t* at = any(candidates, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  erase_step(wrong, *at);
  return wrong;
}

}  // namespace sabotage

std::span<const Sabotage> sabotages() {
  static const std::vector<Sabotage> all = [] {
    std::vector<Sabotage> made;
    for (const std::vector<Sabotage>& kind : {sabotage::of_runs(), sabotage::of_frees(),
                                              sabotage::of_operands(), sabotage::of_places()}) {
      made.insert(made.end(), kind.begin(), kind.end());
    }
    return made;
  }();
  return all;
}

std::span<const Sabotage> move_sabotages() {
  static const std::vector<Sabotage> all = sabotage::of_moves();
  return all;
}

}  // namespace remat::testing
