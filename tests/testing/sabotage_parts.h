// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "tests/testing/random_graph.h"
#include "tests/testing/sabotage.h"

// What the sabotages share. Each file holds those of one kind.
namespace remat::testing::sabotage {

using Maybe = std::optional<Schedule>;
using Random = std::mt19937_64;
using Kind = ViolationKind;

std::vector<Sabotage> of_runs();      // ops dropped, swapped, repeated, or run as something else
std::vector<Sabotage> of_frees();     // frees dropped, moved, repeated, or of what must survive
std::vector<Sabotage> of_operands();  // operands bound to the wrong instance
std::vector<Sabotage> of_places();    // results that take a place they must not take
std::vector<Sabotage> of_moves();     // packed and offloaded forms, where a schedule has them

template <typename Item>
const Item* any(const std::vector<Item>& items, Random& random) {
  if (items.empty()) return nullptr;
  return &items[static_cast<size_t>(draw(random, 0, static_cast<int64_t>(items.size()) - 1))];
}

inline bool executes(const ScheduleStep& step) { return step.kind != StepKind::free; }

// Positions of the steps for which `wanted(step, position)` holds.
std::vector<size_t> steps_where(const Schedule& schedule,
                                const std::function<bool(const ScheduleStep&, size_t)>& wanted);
std::vector<size_t> steps_of(const Schedule& schedule, StepKind kind);

void erase_step(Schedule& schedule, size_t at);
void insert_step(Schedule& schedule, size_t at, const ScheduleStep& step);
Maybe drop_step(const Schedule& schedule, const std::vector<size_t>& candidates, Random& random);

ScheduleStep free_of(InstanceId id);
// Where it is freed; the number of steps if it is not.
size_t free_position(const Schedule& schedule, InstanceId id);

bool takes_input(const Graph& graph, const Schedule& schedule, const ScheduleStep& step, InstanceId id);
bool writes(const Graph& graph, const Schedule& schedule, const ScheduleStep& step, InstanceId id);
bool needed_after(const Graph& graph, const Schedule& schedule, size_t position, InstanceId id);

}  // namespace remat::testing::sabotage
