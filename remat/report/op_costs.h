// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

// What an op's results cost when everything is kept, and what it would take to make them again.
//
//     conv ──────── relu ─ ··· forward │ backward ··· ─ d_relu ─ d_conv
//     created       last use           │               first use  last use
//                   ├── idle ──────────────────────────┤
struct OpCost {
  int64_t created_bytes = 0;
  int64_t saved_bytes = 0;  // of them, made in forward and needed after it
  // Over all that the op creates; none where there is no such use.
  std::optional<OpId> first_forward_use = {};
  std::optional<OpId> last_forward_use = {};
  std::optional<OpId> first_backward_use = {};  // backward or optimizer
  std::optional<OpId> last_backward_use = {};
  // Of what is saved; 0 where nothing is.
  int64_t idle_ns = 0;    // the longest time between the last use in forward and the first after it
  int64_t remake_ns = 0;  // the op again, and the ops that change its results in forward

  // Several ops as one: sums, the longest idle time, the earliest and the latest uses.
  void add(const OpCost& other);
};

// By op of the graph.
std::vector<OpCost> op_costs(const Graph& graph);

// Into the row of a table: created_bytes, saved_bytes, the uses as numbers of ops, idle_ns, remake_ns,
// saved_bytes_per_ms (null where nothing is saved, or making it again takes no time).
nlohmann::json cost_json(const OpCost& cost);

}  // namespace remat
