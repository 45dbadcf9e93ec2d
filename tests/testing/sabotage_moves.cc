// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/sabotage_parts.h"

#include <algorithm>
#include <utility>

namespace remat::testing::sabotage {
namespace {

bool is_move(const ScheduleStep& step) {
  return step.kind == StepKind::pack || step.kind == StepKind::unpack ||
         step.kind == StepKind::offload || step.kind == StepKind::prefetch;
}

bool leaves(const ScheduleStep& step) {
  return step.kind == StepKind::pack || step.kind == StepKind::offload;
}

StorageId storage_of(const Schedule& schedule, InstanceId id) {
  return schedule.instances[index(id)].storage;
}

// Whether the instance is a form that this kind of move makes.
bool is_made_by(const Graph& graph, const Schedule& schedule, InstanceId id, MoveKind kind) {
  const StorageId storage = storage_of(schedule, id);
  return graph.is_form(storage) && graph.move(*graph.storage(storage).creator).kind == kind;
}

// The storage of which a form holds a value.
StorageId within(const Graph& graph, StorageId form) {
  return graph.move(*graph.storage(form).creator).value.storage;
}

size_t creation_of(const Graph& graph, const Schedule& schedule, InstanceId id) {
  size_t at = 0;
  while (!executes(schedule.steps[at]) || !writes(graph, schedule, schedule.steps[at], id)) ++at;
  return at;
}

Maybe move_step(const Schedule& schedule, size_t from, size_t to) {
  Schedule wrong = schedule;
  const ScheduleStep step = schedule.steps[from];
  erase_step(wrong, from);
  insert_step(wrong, to, step);
  return wrong;
}

template <StepKind kind>
Maybe drop(const Graph&, const Schedule& schedule, Random& random) {
  return drop_step(schedule, steps_of(schedule, kind), random);
}

// To before the step that makes what it reads.
template <StepKind kind>
Maybe too_early(const Graph& graph, const Schedule& schedule, Random& random) {
  const std::vector<size_t> steps = steps_of(schedule, kind);
  const size_t* at = any(steps, random);
  if (at == nullptr) return std::nullopt;
  const InstanceId source = schedule.reads(graph, schedule.steps[*at])[0];
  return move_step(schedule, *at, creation_of(graph, schedule, source));
}

struct Binding {
  size_t slot = 0;
  InstanceId instance{};
};

Maybe rebind(const Schedule& schedule, const std::vector<Binding>& candidates, Random& random) {
  const Binding* chosen = any(candidates, random);
  if (chosen == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.operands[chosen->slot] = chosen->instance;
  return wrong;
}

// For every read of every step that is `wanted`, the instances that are `other` than what it is bound to.
template <typename Wanted, typename Other>
std::vector<Binding> bindings(const Graph& graph, const Schedule& schedule, const Wanted& wanted,
                              const Other& other) {
  std::vector<Binding> found;
  for (const ScheduleStep& step : schedule.steps) {
    if (!executes(step) || !wanted(step)) continue;
    const auto reads = schedule.reads(graph, step);
    for (size_t k = 0; k < reads.size(); ++k) {
      for (size_t i = graph.external_count; i < schedule.instances.size(); ++i) {
        const InstanceId id = static_cast<InstanceId>(i);
        if (other(reads[k], id)) found.push_back({static_cast<size_t>(step.first_operand) + k, id});
      }
    }
  }
  return found;
}

// An op that needs the value gets its packed bytes.
Maybe packed_for_value(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [](const ScheduleStep& step) { return !is_move(step); };
  const auto other = [&](InstanceId bound, InstanceId id) {
    return is_made_by(graph, schedule, id, MoveKind::pack) &&
           within(graph, storage_of(schedule, id)) == storage_of(schedule, bound);
  };
  return rebind(schedule, bindings(graph, schedule, wanted, other), random);
}

// Something that needs a form gets a copy of the value.
Maybe value_for_form(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [](const ScheduleStep&) { return true; };
  const auto other = [&](InstanceId bound, InstanceId id) {
    return graph.is_form(storage_of(schedule, bound)) &&
           within(graph, storage_of(schedule, bound)) == storage_of(schedule, id);
  };
  return rebind(schedule, bindings(graph, schedule, wanted, other), random);
}

Maybe other_form(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [](const ScheduleStep&) { return true; };
  const auto other = [&](InstanceId bound, InstanceId id) {
    const StorageId needed = storage_of(schedule, bound);
    const StorageId form = storage_of(schedule, id);
    return graph.is_form(needed) && graph.is_form(form) && needed != form;
  };
  return rebind(schedule, bindings(graph, schedule, wanted, other), random);
}

// A copy of the same form that is there later, or was.
Maybe missing_form(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<Binding> found;
  std::vector<bool> here(schedule.instances.size(), false);
  for (const ScheduleStep& step : schedule.steps) {
    if (!executes(step)) {
      here[index(step.instance)] = false;
      continue;
    }
    const auto reads = schedule.reads(graph, step);
    for (size_t k = 0; k < reads.size(); ++k) {
      if (!graph.is_form(storage_of(schedule, reads[k]))) continue;
      for (size_t i = 0; i < schedule.instances.size(); ++i) {
        const bool same = schedule.instances[i].storage == storage_of(schedule, reads[k]);
        if (same && !here[i]) {
          found.push_back({static_cast<size_t>(step.first_operand) + k, static_cast<InstanceId>(i)});
        }
      }
    }
    for (const InstanceId id : schedule.creates(graph, step)) here[index(id)] = true;
  }
  return rebind(schedule, found, random);
}

// The op itself runs, with the operands of the move that reads packed bytes in its place.
Maybe op_reads_packed(const Graph& graph, const Schedule& schedule, Random& random) {
  const auto wanted = [&](const ScheduleStep& step, size_t) {
    return executes(step) && graph.original(step.op) != step.op;
  };
  const std::vector<size_t> steps = steps_where(schedule, wanted);
  const size_t* at = any(steps, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.steps[*at].op = graph.original(schedule.steps[*at].op);
  return wrong;
}

// The move that reads packed bytes runs, with the operands of the op.
Maybe reader_gets_value(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<std::pair<size_t, OpId>> candidates;
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    for (size_t m = 0; executes(schedule.steps[s]) && m < graph.moves.size(); ++m) {
      const Move& move = graph.moves[m];
      if (move.kind == MoveKind::read_packed && move.reader == schedule.steps[s].op) {
        candidates.emplace_back(s, static_cast<OpId>(graph.ops.size() + m));
      }
    }
  }
  const auto* chosen = any(candidates, random);
  if (chosen == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.steps[chosen->first].op = chosen->second;
  return wrong;
}

template <MoveKind kind>
std::vector<size_t> frees_of_forms(const Graph& graph, const Schedule& schedule) {
  return steps_where(schedule, [&](const ScheduleStep& step, size_t) {
    return !executes(step) && is_made_by(graph, schedule, step.instance, kind);
  });
}

// To before the last step that uses the form, or makes it.
template <MoveKind kind>
Maybe free_form_early(const Graph& graph, const Schedule& schedule, Random& random) {
  const std::vector<size_t> frees = frees_of_forms<kind>(graph, schedule);
  const size_t* at = any(frees, random);
  if (at == nullptr) return std::nullopt;
  const InstanceId form = schedule.steps[*at].instance;
  size_t last = *at;
  while (!takes_input(graph, schedule, schedule.steps[last], form) &&
         !writes(graph, schedule, schedule.steps[last], form)) {
    --last;
  }
  return move_step(schedule, *at, last);
}

template <MoveKind kind>
Maybe free_form_twice(const Graph& graph, const Schedule& schedule, Random& random) {
  const std::vector<size_t> frees = frees_of_forms<kind>(graph, schedule);
  const size_t* at = any(frees, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  insert_step(wrong, *at + 1, schedule.steps[*at]);
  return wrong;
}

template <MoveKind kind>
Maybe free_form_never(const Graph& graph, const Schedule& schedule, Random& random) {
  return drop_step(schedule, frees_of_forms<kind>(graph, schedule), random);
}

// The copy is gone when it is to be packed or offloaded.
Maybe free_before_it_leaves(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<std::pair<size_t, size_t>> candidates;  // the free, and the step before which it comes
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    if (!leaves(schedule.steps[s])) continue;
    const InstanceId source = schedule.reads(graph, schedule.steps[s])[0];
    const size_t freed = free_position(schedule, source);
    if (freed < schedule.steps.size()) candidates.emplace_back(freed, s);
  }
  const auto* chosen = any(candidates, random);
  if (chosen == nullptr) return std::nullopt;
  return move_step(schedule, chosen->first, chosen->second);
}

// Moves a step that packs or offloads to before the last update of its copy.
template <StepKind kind>
Maybe before_last_update(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<std::pair<size_t, size_t>> candidates;
  for (const size_t s : steps_of(schedule, kind)) {
    const InstanceId source = schedule.reads(graph, schedule.steps[s])[0];
    for (size_t u = s; u-- > 0;) {
      if (!executes(schedule.steps[u])) continue;
      const auto updated = schedule.updates(graph, schedule.steps[u]);
      if (std::find(updated.begin(), updated.end(), source) == updated.end()) continue;
      candidates.emplace_back(s, u);
      break;
    }
  }
  const auto* chosen = any(candidates, random);
  if (chosen == nullptr) return std::nullopt;
  return move_step(schedule, chosen->first, chosen->second);
}

// A write begins before the last reader, which may take the copy's place, and does.
Maybe take_place_while_written(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<std::pair<size_t, size_t>> candidates;  // the offload, and the reader
  for (const size_t s : steps_of(schedule, StepKind::offload)) {
    const InstanceId source = schedule.reads(graph, schedule.steps[s])[0];
    for (size_t u = s; u-- > 0;) {
      const ScheduleStep& step = schedule.steps[u];
      if (!takes_input(graph, schedule, step, source)) continue;
      for (const InstanceId result : schedule.creates(graph, step)) {
        const Reuse pair{storage_of(schedule, result), storage_of(schedule, source)};
        const auto& listed = graph.op(step.op).reuse;
        if (schedule.instances[index(result)].in_place_of == kNoInstance &&
            std::find(listed.begin(), listed.end(), pair) != listed.end()) {
          candidates.emplace_back(s, u);
        }
      }
      break;
    }
  }
  const auto* chosen = any(candidates, random);
  if (chosen == nullptr) return std::nullopt;
  const InstanceId source = schedule.reads(graph, schedule.steps[chosen->first])[0];
  Schedule wrong = schedule;
  for (const InstanceId result : schedule.creates(graph, schedule.steps[chosen->second])) {
    const Reuse pair{storage_of(schedule, result), storage_of(schedule, source)};
    const auto& listed = graph.op(schedule.steps[chosen->second].op).reuse;
    Instance& instance = wrong.instances[index(result)];
    if (instance.in_place_of != kNoInstance) continue;
    if (std::find(listed.begin(), listed.end(), pair) == listed.end()) continue;
    instance.in_place_of = source;
    break;
  }
  erase_step(wrong, free_position(wrong, source));
  return move_step(wrong, chosen->first, chosen->second);
}

Maybe offload_twice(const Graph& graph, const Schedule& schedule, Random& random) {
  const std::vector<size_t> offloads = steps_of(schedule, StepKind::offload);
  const size_t* at = any(offloads, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  ScheduleStep again = schedule.steps[*at];
  again.first_operand = static_cast<int32_t>(wrong.operands.size());
  const InstanceId fresh = static_cast<InstanceId>(wrong.instances.size());
  const InstanceId form = schedule.creates(graph, schedule.steps[*at])[0];
  wrong.instances.push_back({storage_of(schedule, form), 1'000'000, kNoInstance});
  wrong.operands.push_back(schedule.reads(graph, schedule.steps[*at])[0]);
  wrong.operands.push_back(fresh);
  insert_step(wrong, *at + 1, again);
  insert_step(wrong, *at + 2, free_of(fresh));
  return wrong;
}

Maybe other_kind(const Graph&, const Schedule& schedule, Random& random) {
  const auto wanted = [](const ScheduleStep& step, size_t) { return is_move(step); };
  const std::vector<size_t> moves = steps_where(schedule, wanted);
  const size_t* at = any(moves, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  StepKind& kind = wrong.steps[*at].kind;
  while (kind == schedule.steps[*at].kind || kind == StepKind::free) {
    kind = static_cast<StepKind>(draw(random, 0, kStepKindCount - 1));
  }
  return wrong;
}

Maybe run_as_move(const Graph&, const Schedule& schedule, Random& random) {
  const std::vector<size_t> runs = steps_of(schedule, StepKind::run);
  const size_t* at = any(runs, random);
  if (at == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.steps[*at].kind = static_cast<StepKind>(
      draw(random, static_cast<int64_t>(StepKind::pack), static_cast<int64_t>(StepKind::prefetch)));
  return wrong;
}

// The same kind of move, of another storage.
Maybe move_of_other(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<std::pair<size_t, OpId>> candidates;
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    if (!is_move(schedule.steps[s])) continue;
    for (size_t m = 0; m < graph.moves.size(); ++m) {
      const OpId id = static_cast<OpId>(graph.ops.size() + m);
      if (id != schedule.steps[s].op && step_kind_of(graph, id) == schedule.steps[s].kind) {
        candidates.emplace_back(s, id);
      }
    }
  }
  const auto* chosen = any(candidates, random);
  if (chosen == nullptr) return std::nullopt;
  Schedule wrong = schedule;
  wrong.steps[chosen->first].op = chosen->second;
  return wrong;
}

// What comes back is written over the first copy, freed or not.
Maybe back_into_old_copy(const Graph& graph, const Schedule& schedule, Random& random) {
  std::vector<Binding> candidates;
  for (const ScheduleStep& step : schedule.steps) {
    if (!is_move(step) || leaves(step)) continue;
    for (size_t i = 0; i < schedule.instances.size(); ++i) {
      const Instance& instance = schedule.instances[i];
      if (instance.storage != graph.op(step.op).creates[0] || instance.copy != 0) continue;
      candidates.push_back({static_cast<size_t>(step.first_operand) + 1, static_cast<InstanceId>(i)});
    }
  }
  return rebind(schedule, candidates, random);
}

// What was brought back is not, and whoever used it uses the copy that was offloaded and freed.
Maybe read_what_is_away(const Graph& graph, const Schedule& schedule, Random& random) {
  const std::vector<size_t> prefetches = steps_of(schedule, StepKind::prefetch);
  const size_t* at = any(prefetches, random);
  if (at == nullptr) return std::nullopt;
  const InstanceId away = schedule.reads(graph, schedule.steps[*at])[0];
  const InstanceId back = schedule.creates(graph, schedule.steps[*at])[0];
  const size_t offload = creation_of(graph, schedule, away);
  const InstanceId gone = schedule.reads(graph, schedule.steps[offload])[0];
  Schedule wrong = schedule;
  std::replace(wrong.operands.begin(), wrong.operands.end(), back, gone);
  for (Instance& instance : wrong.instances) {
    if (instance.in_place_of == back) instance.in_place_of = gone;
  }
  const size_t freed = free_position(wrong, back);
  if (freed < wrong.steps.size()) erase_step(wrong, freed);
  erase_step(wrong, *at);
  return wrong;
}

}  // namespace

std::vector<Sabotage> of_moves() {
  constexpr MoveKind kPack = MoveKind::pack, kOffload = MoveKind::offload;
  return {
      {"drop_pack", {Kind::read_missing, Kind::bad_free}, drop<StepKind::pack>},
      {"drop_unpack",
       {Kind::read_missing, Kind::bad_free, Kind::bad_reuse, Kind::output_wrong},
       drop<StepKind::unpack>},
      {"drop_offload", {Kind::read_missing}, drop<StepKind::offload>},
      {"drop_prefetch",
       {Kind::read_missing, Kind::bad_free, Kind::bad_reuse, Kind::output_wrong},
       drop<StepKind::prefetch>},
      {"unpack_before_pack", {Kind::read_missing}, too_early<StepKind::unpack>},
      {"prefetch_before_offload", {Kind::read_missing}, too_early<StepKind::prefetch>},
      {"packed_for_value", {Kind::wrong_operand}, packed_for_value},
      {"value_for_form", {Kind::wrong_operand}, value_for_form},
      {"other_form", {Kind::wrong_operand}, other_form},
      {"missing_form", {Kind::read_missing}, missing_form},
      {"op_reads_packed", {Kind::wrong_operand}, op_reads_packed},
      {"reader_gets_value", {Kind::wrong_operand}, reader_gets_value},
      {"free_packed_early", {Kind::read_missing, Kind::bad_free}, free_form_early<kPack>},
      {"free_packed_twice", {Kind::bad_free}, free_form_twice<kPack>},
      {"free_packed_never", {Kind::missing_free}, free_form_never<kPack>},
      {"free_away_early", {Kind::read_missing}, free_form_early<kOffload>},
      {"free_away_twice", {Kind::bad_free}, free_form_twice<kOffload>},
      {"free_away_never", {Kind::missing_free}, free_form_never<kOffload>},
      {"free_before_it_leaves", {Kind::read_missing, Kind::bad_free}, free_before_it_leaves},
      {"pack_old_version", {Kind::wrong_version}, before_last_update<StepKind::pack>},
      {"update_while_written", {Kind::write_disturbed}, before_last_update<StepKind::offload>},
      {"take_place_while_written", {Kind::bad_reuse}, take_place_while_written},
      {"offload_twice", {Kind::write_disturbed}, offload_twice},
      {"other_kind", {Kind::malformed}, other_kind},
      {"run_as_move", {Kind::malformed}, run_as_move},
      {"move_of_other", {Kind::wrong_operand, Kind::bad_free, Kind::bad_reuse}, move_of_other},
      {"back_into_old_copy", {Kind::created_twice}, back_into_old_copy},
      {"read_what_is_away",
       {Kind::read_missing, Kind::bad_free, Kind::bad_reuse, Kind::output_wrong},
       read_what_is_away},
  };
}

}  // namespace remat::testing::sabotage
