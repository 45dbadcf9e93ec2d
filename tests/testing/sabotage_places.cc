// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/sabotage_parts.h"

#include <algorithm>

namespace remat::testing::sabotage {
namespace {

bool listed(const Op& op, StorageId result, StorageId source) {
  return std::find(op.reuse.begin(), op.reuse.end(), Reuse{result, source}) != op.reuse.end();
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

}  // namespace

std::vector<Sabotage> of_places() {
  return {
      {"reuse_unlisted", {Kind::bad_reuse}, reuse_unlisted},
      {"reuse_needed", {Kind::bad_reuse, Kind::read_missing, Kind::bad_free}, reuse_needed},
      {"free_after_reuse", {Kind::bad_free}, free_after_reuse},
  };
}

}  // namespace remat::testing::sabotage
