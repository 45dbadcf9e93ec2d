// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/sabotage_parts.h"

namespace remat::testing::sabotage {
namespace {

// An operand slot of the schedule and what to put there.
struct Rebinding {
  size_t slot = 0;
  InstanceId instance{};
};

Maybe rebind(const Schedule& schedule, const std::vector<Rebinding>& candidates, Random& random) {
  const Rebinding* chosen = any(candidates, random);
  if (chosen == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.operands[chosen->slot] = chosen->instance;
  return wrong;
}

// For every input of every step, the instances of the same storage that are resident there at
// another version (`resident`), or that are not resident there.
std::vector<Rebinding> wrong_copies(const Graph& graph, const Schedule& schedule, bool resident) {
  std::vector<Rebinding> found;
  std::vector<int> version(schedule.instances.size(), 0);
  std::vector<bool> here(schedule.instances.size(), false);
  for (const ScheduleStep& step : schedule.steps) {
    if (!executes(step)) {
      here[index(step.instance)] = false;
      continue;
    }
    const Op& op = graph.op(step.op);
    const size_t first = static_cast<size_t>(step.first_operand);
    for (size_t k = 0; k < op.reads.size() + op.updates.size(); ++k) {
      const InstanceId bound = schedule.operands[first + k];
      for (size_t i = graph.external_count; i < schedule.instances.size(); ++i) {
        if (schedule.instances[i].storage != schedule.instances[index(bound)].storage) continue;
        const bool wrong = resident ? here[i] && version[i] != version[index(bound)] : !here[i];
        if (wrong) found.push_back({first + k, static_cast<InstanceId>(i)});
      }
    }
    for (const InstanceId id : schedule.updates(graph, step)) ++version[index(id)];
    for (const InstanceId id : schedule.creates(graph, step)) {
      here[index(id)] = true;
      const InstanceId source = schedule.instances[index(id)].in_place_of;
      if (source != kNoInstance) here[index(source)] = false;
    }
  }
  return found;
}

Maybe bind_other_version(const Graph& graph, const Schedule& schedule, Random& random) {
  return rebind(schedule, wrong_copies(graph, schedule, true), random);
}

Maybe bind_missing_copy(const Graph& graph, const Schedule& schedule, Random& random) {
  return rebind(schedule, wrong_copies(graph, schedule, false), random);
}

Maybe bind_other_storage(const Graph&, const Schedule& schedule, Random& random) {
  std::vector<Rebinding> candidates;
  for (size_t slot = 0; slot < schedule.operands.size(); ++slot) {
    const int64_t last = static_cast<int64_t>(schedule.instances.size()) - 1;
    const InstanceId other = static_cast<InstanceId>(draw(random, 0, last));
    const InstanceId bound = schedule.operands[slot];
    if (schedule.instances[index(other)].storage != schedule.instances[index(bound)].storage) {
      candidates.push_back({slot, other});
    }
  }
  return rebind(schedule, candidates, random);
}

// A recompute that writes into the place of its run instead of a fresh instance.
Maybe create_twice(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<Rebinding> candidates;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind != StepKind::recompute) continue;
    const Op& op = graph.op(step.op);
    const size_t first =
        static_cast<size_t>(step.first_operand) + op.reads.size() + op.updates.size();
    for (size_t k = 0; k < op.creates.size(); ++k) {
      const Instance original{.storage = op.creates[k], .copy = 0};
      for (size_t i = 0; i < schedule.instances.size(); ++i) {
        const Instance& instance = schedule.instances[i];
        if (instance.storage != original.storage || instance.copy != original.copy) continue;
        candidates.push_back({first + k, static_cast<InstanceId>(i)});
      }
    }
  }
  return rebind(schedule, candidates, random);
}

}  // namespace

std::vector<Sabotage> of_operands() {
  return {
      {"bind_other_version", {Kind::wrong_version}, bind_other_version},
      {"bind_missing_copy", {Kind::read_missing}, bind_missing_copy},
      {"bind_other_storage", {Kind::wrong_operand}, bind_other_storage},
      {"create_twice", {Kind::created_twice}, create_twice},
  };
}

}  // namespace remat::testing::sabotage
