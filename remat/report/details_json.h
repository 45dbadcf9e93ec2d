// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/place.h"
#include "remat/core/schedule.h"
#include "remat/core/simulate.h"

// What pages show beyond the sums of a report: every op, every run of a schedule, every block of the arena.
// Tables are objects of columns of the same length, so that ten thousand rows stay small.
namespace remat {

// name, kind, layer, phase, time_ns by op of the graph.
nlohmann::json ops_json(const Graph& graph);

// {"bytes": [...], "by_role": {"param": 97, "activation": [...], ..., "workspace": [...]}}: a role whose bytes
// never change has one number, roles without bytes are left out.
nlohmann::json moments_json(const std::vector<Moment>& moments);

struct ScheduleDetails {
  bool by_role = true;
  std::span<const int64_t> measured_bytes = {};  // by run; empty: not measured
};

// The runs of a schedule in their order: "op" (its number in the graph; the second time, it is run again),
// "bytes" and "by_role" while it runs, "emptied": the ops of which nothing is resident any more afterwards,
// "measured_bytes" where they are known. Beside them peak_bytes, peak_run, time_ns.
nlohmann::json schedule_json(const Graph& graph, const Schedule& schedule,
                             const ScheduleDetails& details = {});

// The blocks of the arena: "offset", "bytes", "from" and "to" (the first and the last run while which the
// block is taken), "role" (its place in "roles", of which "workspace" is one), "op" that asked for it. Beside
// them arena_bytes, max_live_bytes.
nlohmann::json arena_json(const Graph& graph, const Schedule& schedule, const Placement& placement);

}  // namespace remat
