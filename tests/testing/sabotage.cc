// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/sabotage.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tests/testing/random_graph.h"

namespace remat::testing {
namespace {

using Maybe = std::optional<Schedule>;
using Random = std::mt19937_64;

template <typename Item>
const Item* any(const std::vector<Item>& items, Random& random) {
  if (items.empty()) return nullptr;
  return &items[static_cast<size_t>(draw(random, 0, static_cast<int64_t>(items.size()) - 1))];
}

bool executes(const ScheduleStep& step) { return step.kind != StepKind::free; }

// Positions of the steps for which `wanted(step, position)` holds.
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

bool holds(std::span<const InstanceId> ids, InstanceId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
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

bool listed(const Op& op, StorageId result, StorageId source) {
  return std::find(op.reuse.begin(), op.reuse.end(), Reuse{result, source}) != op.reuse.end();
}

Maybe drop_step(const Schedule& schedule, const std::vector<size_t>& candidates, Random& random) {
  const size_t* at = any(candidates, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  erase_step(wrong, *at);
  return wrong;
}

Maybe drop_run(const Graph&, const Schedule& schedule, Random& random) {
  return drop_step(schedule, steps_of(schedule, StepKind::run), random);
}

// What it creates is freed, taken or an output; what it updates must be needed for this to matter.
Maybe drop_recompute(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto matters = [&](const ScheduleStep& step, size_t position) {
    if (step.kind != StepKind::recompute) return false;
    if (!schedule.creates(graph, step).empty()) return true;
    const auto updated = schedule.updates(graph, step);
    return std::any_of(updated.begin(), updated.end(),
                       [&](InstanceId id) { return needed_after(graph, schedule, position, id); });
  };
  return drop_step(schedule, steps_where(schedule, matters), random);
}

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

// A step and one that needs what the first writes.
Maybe swap_dependent(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t writer = 0; writer < schedule.steps.size(); ++writer) {
    if (!executes(schedule.steps[writer])) continue;
    for (size_t reader = writer + 1; reader < schedule.steps.size(); ++reader) {
      const ScheduleStep& step = schedule.steps[reader];
      if (!executes(step)) continue;
      for (const auto& ids : {schedule.reads(graph, step), schedule.updates(graph, step)}) {
        const bool depends = std::any_of(ids.begin(), ids.end(), [&](InstanceId id) {
          return writes(graph, schedule, schedule.steps[writer], id);
        });
        if (depends) pairs.emplace_back(writer, reader);
      }
    }
  }
  const auto* pair = any(pairs, random);
  if (pair == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  std::swap(wrong.steps[pair->first], wrong.steps[pair->second]);
  return wrong;
}

// First runs of two ops of a class whose mutual order counts.
Maybe swap_runs(const Schedule& schedule, const std::vector<size_t>& runs, Random& random) {
  if (runs.size() < 2) return std::nullopt;
  const size_t first = static_cast<size_t>(draw(random, 0, static_cast<int64_t>(runs.size()) - 2));
  Schedule wrong = schedule;
  std::swap(wrong.steps[runs[first]], wrong.steps[runs[first + 1]]);
  return wrong;
}

Maybe swap_random(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const ScheduleStep& step, size_t) {
    return step.kind == StepKind::run && graph.op(step.op).random;
  };
  return swap_runs(schedule, steps_where(schedule, wanted), random);
}

Maybe swap_once(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const ScheduleStep& step, size_t) {
    return step.kind == StepKind::run && graph.op(step.op).once;
  };
  return swap_runs(schedule, steps_where(schedule, wanted), random);
}

Maybe swap_effects(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const ScheduleStep& step, size_t) {
    return step.kind == StepKind::run && !graph.op(step.op).effects.empty();
  };
  return swap_runs(schedule, steps_where(schedule, wanted), random);
}

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

Maybe change_kind(const Schedule& schedule, const std::vector<size_t>& candidates, StepKind kind,
                  Random& random) {
  const size_t* at = any(candidates, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.steps[*at].kind = kind;
  return wrong;
}

Maybe run_as_recompute(const Graph&, const Schedule& schedule, Random& random) {
  return change_kind(schedule, steps_of(schedule, StepKind::run), StepKind::recompute, random);
}

Maybe recompute_as_run(const Graph&, const Schedule& schedule, Random& random) {
  return change_kind(schedule, steps_of(schedule, StepKind::recompute), StepKind::run, random);
}

// A BatchNorm that moves its running statistics a second time.
Maybe effect_twice(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const ScheduleStep& step, size_t) {
    return step.kind == StepKind::recompute && !graph.op(step.op).effects.empty();
  };
  return change_kind(schedule, steps_where(schedule, wanted), StepKind::run, random);
}

// A dropout that draws from the generator a second time.
Maybe draw_twice(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const ScheduleStep& step, size_t) {
    return step.kind == StepKind::recompute && graph.op(step.op).random;
  };
  return change_kind(schedule, steps_where(schedule, wanted), StepKind::run, random);
}

// Right after the run, where its inputs may still be there, into fresh instances.
Maybe rerun_once(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const ScheduleStep& step, size_t) {
    return step.kind == StepKind::run && !graph.rerunnable(step.op);
  };
  const std::vector<size_t> candidates = steps_where(schedule, wanted);
  const size_t* at = any(candidates, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  ScheduleStep again = schedule.steps[*at];
  again.kind = StepKind::recompute;
  again.first_operand = static_cast<int32_t>(wrong.operands.size());
  const ScheduleStep& first = schedule.steps[*at];
  for (const auto& ids : {schedule.reads(graph, first), schedule.updates(graph, first)}) {
    wrong.operands.insert(wrong.operands.end(), ids.begin(), ids.end());
  }
  size_t next = *at + 1;
  insert_step(wrong, next, again);
  for (const StorageId storage : graph.op(again.op).creates) {
    const InstanceId fresh = static_cast<InstanceId>(wrong.instances.size());
    wrong.instances.push_back({storage, 1'000'000, kNoInstance});
    wrong.operands.push_back(fresh);
    insert_step(wrong, ++next, free_of(fresh));
  }
  return wrong;
}

// A result and an input of one step.
struct Place {
  InstanceId result{};
  InstanceId source{};
};

std::vector<Place> places(
    const Graph& graph, const Schedule& schedule,
    const std::function<bool(const Op&, size_t position, const Place&)>& wanted) {
  std::vector<Place> found;
  for (size_t position = 0; position < schedule.steps.size(); ++position) {
    const ScheduleStep& step = schedule.steps[position];
    if (!executes(step)) continue;
    for (const InstanceId result : schedule.creates(graph, step)) {
      for (const InstanceId source : schedule.reads(graph, step)) {
        const Place place{result, source};
        if (wanted(graph.op(step.op), position, place)) found.push_back(place);
      }
    }
  }
  return found;
}

// The result takes the place; the source's own free, if it has one, goes.
Maybe take_place(const Schedule& schedule, const std::vector<Place>& candidates, Random& random) {
  const Place* place = any(candidates, random);
  if (place == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.instances[index(place->result)].in_place_of = place->source;
  const size_t freed = free_position(schedule, place->source);
  if (freed < schedule.steps.size()) erase_step(wrong, freed);
  return wrong;
}

// The source dies there, so that only the missing permission is wrong.
Maybe reuse_unlisted(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const Op& op, size_t position, const Place& place) {
    const Instance& result = schedule.instances[index(place.result)];
    return result.in_place_of == kNoInstance &&
           free_position(schedule, place.source) < schedule.steps.size() &&
           !needed_after(graph, schedule, position, place.source) &&
           !listed(op, result.storage, schedule.instances[index(place.source)].storage);
  };
  return take_place(schedule, places(graph, schedule, wanted), random);
}

// Permission is there, but a later step, the caller or the world needs the source.
Maybe reuse_needed(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const Op& op, size_t position, const Place& place) {
    const Instance& source = schedule.instances[index(place.source)];
    const Instance& result = schedule.instances[index(place.result)];
    return result.in_place_of == kNoInstance && listed(op, result.storage, source.storage) &&
           (graph.storage(source.storage).external() ||
            needed_after(graph, schedule, position, place.source));
  };
  return take_place(schedule, places(graph, schedule, wanted), random);
}

Maybe free_after_reuse(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const Op&, size_t, const Place& place) {
    return schedule.instances[index(place.result)].in_place_of == place.source;
  };
  const std::vector<Place> candidates = places(graph, schedule, wanted);
  const Place* place = any(candidates, random);
  if (place == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.steps.push_back(free_of(place->source));
  return wrong;
}

Maybe recompute_before_run(const Graph&, const Schedule& schedule, Random& random) {
  const std::vector<size_t> recomputes = steps_of(schedule, StepKind::recompute);
  const size_t* at = any(recomputes, random);
  if (at == nullptr) return std::nullopt;
  const ScheduleStep again = schedule.steps[*at];
  size_t run = 0;
  while (schedule.steps[run].kind != StepKind::run || schedule.steps[run].op != again.op) ++run;
  Schedule wrong = schedule;
  erase_step(wrong, *at);
  insert_step(wrong, run, again);
  return wrong;
}

Maybe run_again(const Graph&, const Schedule& schedule, Random& random) {
  const std::vector<size_t> runs = steps_of(schedule, StepKind::run);
  const size_t* at = any(runs, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  insert_step(wrong, *at + 1, schedule.steps[*at]);
  return wrong;
}

using Kind = ViolationKind;

const std::vector<Sabotage> kSabotages = {
    {"drop_run",
     {Kind::op_missing, Kind::read_missing, Kind::wrong_version, Kind::order_changed,
      Kind::bad_free, Kind::bad_reuse, Kind::recompute_first, Kind::external_wrong},
     drop_run},
    {"drop_recompute",
     {Kind::read_missing, Kind::wrong_version, Kind::bad_free, Kind::bad_reuse, Kind::output_wrong},
     drop_recompute},
    {"drop_free", {Kind::missing_free}, drop_free},
    {"free_too_early", {Kind::read_missing, Kind::bad_free}, free_too_early},
    {"free_twice", {Kind::bad_free}, free_twice},
    {"free_external", {Kind::bad_free}, free_external},
    {"free_output", {Kind::bad_free}, free_output},
    {"swap_dependent",
     {Kind::read_missing, Kind::wrong_version, Kind::order_changed, Kind::recompute_first},
     swap_dependent},
    {"swap_random", {Kind::order_changed}, swap_random},
    {"swap_once", {Kind::order_changed}, swap_once},
    {"swap_effects", {Kind::order_changed}, swap_effects},
    {"bind_other_version", {Kind::wrong_version}, bind_other_version},
    {"bind_missing_copy", {Kind::read_missing}, bind_missing_copy},
    {"bind_other_storage", {Kind::wrong_operand}, bind_other_storage},
    {"create_twice", {Kind::created_twice}, create_twice},
    {"run_as_recompute", {Kind::recompute_first}, run_as_recompute},
    {"recompute_as_run", {Kind::run_twice}, recompute_as_run},
    {"effect_twice", {Kind::run_twice}, effect_twice},
    {"draw_twice", {Kind::run_twice}, draw_twice},
    {"rerun_once", {Kind::once_recomputed}, rerun_once},
    {"reuse_unlisted", {Kind::bad_reuse}, reuse_unlisted},
    {"reuse_needed", {Kind::bad_reuse, Kind::read_missing, Kind::bad_free}, reuse_needed},
    {"free_after_reuse", {Kind::bad_free}, free_after_reuse},
    {"recompute_before_run", {Kind::recompute_first}, recompute_before_run},
    {"run_again", {Kind::run_twice}, run_again},
};

}  // namespace

std::span<const Sabotage> sabotages() { return kSabotages; }

}  // namespace remat::testing
