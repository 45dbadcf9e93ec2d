// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

inline constexpr int64_t kNoBudget = std::numeric_limits<int64_t>::max();

struct PlanOptions {
  int64_t budget_bytes = kNoBudget;  // bounds the peak, externals included
  std::string strategy = "auto";     // a name from strategies()
  int64_t every_k = 0;               // every_k: boundaries per segment; 0 = the square root of all
  // Orders longer than this are not built: recompute_all on a deep graph grows quadratically.
  int64_t max_runs = 20'000'000;
};

// Why a storage is kept or recomputed, as the strategy saw it when it decided.
struct Decision {
  StorageId storage{};
  bool recomputed = false;
  std::string reason;  // a clause with numbers: "best ratio of 37 candidates, 12 MiB for 1.5 ms"
};

// The least peak that is known to be reachable, and the op that sets it.
struct Floor {
  int64_t bytes = 0;
  OpId op{};
};

// An order of ops, with repeats, and what is known about it.
struct Plan {
  std::vector<OpId> order;
  std::string strategy;
  bool feasible = false;  // peak_bytes <= the budget
  int64_t peak_bytes = 0;
  int64_t time_ns = 0;
  std::optional<int64_t> lower_bound_time_ns;  // proven; none where none is known
  std::vector<Decision> decisions;             // at most one for a storage
  std::string note;                            // one sentence, where there is something to say
};

// One row of the table of strategies.
struct Strategy {
  std::string_view name;
  std::string_view summary;  // one line, for --help
  Plan (*plan)(const Graph&, const PlanOptions&);
};

// In the order in which the literature grew; "auto" comes last.
std::span<const Strategy> strategies();

// Plans with options.strategy. Never fails for lack of memory: the result says if it is feasible.
// Throws Error for an unknown strategy or a negative budget.
Plan plan(const Graph& graph, const PlanOptions& options);

// The peak of the given order with nothing recomputed and without reuse: what the plain framework
// would need. "50%" means half of this.
int64_t keep_all_peak_bytes(const Graph& graph);
int64_t keep_all_time_ns(const Graph& graph);

// The least peak any of our constructions reaches, and the op that sets it.
Floor floor(const Graph& graph);

}  // namespace remat
