// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/sabotage_parts.h"

#include <algorithm>

namespace remat::testing::sabotage {
namespace {

Maybe drop_free(const Graph&, const Schedule& schedule, Random& random) {
  return drop_step(schedule, steps_of(schedule, StepKind::free), random);
}

// Moves a free to before the last step that touches the instance.
Maybe free_too_early(const Graph& graph, const Schedule& schedule, Random& random) {
  const std::vector<size_t> frees = steps_of(schedule, StepKind::free);
  const size_t* at = any(frees, random);
  if (at == nullptr) return std::nullopt;
  const ScheduleStep step = schedule.steps[*at];
  size_t last_use = *at;
  while (!takes_input(graph, schedule, schedule.steps[last_use], step.instance) &&
         !writes(graph, schedule, schedule.steps[last_use], step.instance)) {
    --last_use;
  }
  Schedule wrong = schedule;
  erase_step(wrong, *at);
  insert_step(wrong, last_use, step);
  return wrong;
}

Maybe free_twice(const Graph&, const Schedule& schedule, Random& random) {
  const std::vector<size_t> frees = steps_of(schedule, StepKind::free);
  const size_t* at = any(frees, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  const int64_t last = static_cast<int64_t>(wrong.steps.size());
  insert_step(wrong, static_cast<size_t>(draw(random, static_cast<int64_t>(*at) + 1, last)),
              schedule.steps[*at]);
  return wrong;
}

Maybe free_external(const Graph& graph, const Schedule& schedule, Random& random) {
  Schedule wrong = schedule;
  const int64_t last = static_cast<int64_t>(graph.external_count) - 1;
  wrong.steps.push_back(free_of(static_cast<InstanceId>(draw(random, 0, last))));
  return wrong;
}

// At the end, what is resident and internal is an output.
Maybe free_output(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<InstanceId> left;
  for (size_t i = graph.external_count; i < schedule.instances.size(); ++i) {
    const InstanceId id = static_cast<InstanceId>(i);
    const bool taken = std::any_of(schedule.instances.begin(), schedule.instances.end(),
                                   [=](const Instance& other) { return other.in_place_of == id; });
    if (!taken && free_position(schedule, id) == schedule.steps.size()) left.push_back(id);
  }
  const InstanceId* output = any(left, random);
  if (output == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.steps.push_back(free_of(*output));
  return wrong;
}

}  // namespace

std::vector<Sabotage> of_frees() {
  return {
      {"drop_free", {Kind::missing_free}, drop_free},
      {"free_too_early", {Kind::read_missing, Kind::bad_free}, free_too_early},
      {"free_twice", {Kind::bad_free}, free_twice},
      {"free_external", {Kind::bad_free}, free_external},
      {"free_output", {Kind::bad_free}, free_output},
  };
}

}  // namespace remat::testing::sabotage
