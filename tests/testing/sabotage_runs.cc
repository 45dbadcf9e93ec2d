// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/sabotage_parts.h"

#include <algorithm>
#include <utility>

namespace remat::testing::sabotage {
namespace {

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

Maybe recompute_before_run(const Graph& graph, const Schedule& schedule, Random& random) {
  const std::vector<size_t> recomputes = steps_of(schedule, StepKind::recompute);
  const size_t* at = any(recomputes, random);
  if (at == nullptr) return std::nullopt;
  const ScheduleStep again = schedule.steps[*at];
  const OpId op = graph.original(again.op);
  size_t run = 0;
  while (schedule.steps[run].kind != StepKind::run || graph.original(schedule.steps[run].op) != op) ++run;
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

}  // namespace

std::vector<Sabotage> of_runs() {
  return {
      {"drop_run",
       {Kind::op_missing, Kind::read_missing, Kind::wrong_version, Kind::order_changed,
        Kind::bad_free, Kind::bad_reuse, Kind::recompute_first, Kind::external_wrong},
       drop_run},
      {"drop_recompute",
       {Kind::read_missing, Kind::wrong_version, Kind::bad_free, Kind::bad_reuse,
        Kind::output_wrong},
       drop_recompute},
      {"swap_dependent",
       {Kind::read_missing, Kind::wrong_version, Kind::order_changed, Kind::recompute_first},
       swap_dependent},
      {"swap_random", {Kind::order_changed}, swap_random},
      {"swap_once", {Kind::order_changed}, swap_once},
      {"swap_effects", {Kind::order_changed}, swap_effects},
      {"run_as_recompute", {Kind::recompute_first}, run_as_recompute},
      {"recompute_as_run", {Kind::run_twice}, recompute_as_run},
      {"effect_twice", {Kind::run_twice}, effect_twice},
      {"draw_twice", {Kind::run_twice}, draw_twice},
      {"rerun_once", {Kind::once_recomputed}, rerun_once},
      {"recompute_before_run", {Kind::recompute_first}, recompute_before_run},
      {"run_again", {Kind::run_twice}, run_again},
  };
}

}  // namespace remat::testing::sabotage
