// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/place.h"

namespace remat {

class Effort;

inline constexpr int64_t kNoBudget = std::numeric_limits<int64_t>::max();

// The best plan that a planner has found so far, for a progress display.
struct PlanProgress {
  std::string_view strategy;
  int64_t orders = 0;  // looked at
  int64_t best_peak_bytes = 0;
  int64_t best_time_ns = 0;
};

// What a search consists of. A stage can be left out to measure what it is worth; bench/README.md has the
// table.
struct SearchStages {
  bool constructions = true;  // start from the plans of other strategies
  bool chain_dp = true;       // among them that of chain_dp
  bool early_updates = true;  // orders in which updates come as soon as they can
  bool reorder = true;        // other orders of the same runs, before anything is run again
  bool insert_many = true;    // in large graphs, many insertions at a time
  bool lower_targets = true;  // where nothing fits yet, aim below the budget
  bool ruin = true;           // take out a few re-runs and repair
  bool second_start = true;   // that from the lowest order as well, close to the floor in small graphs
  bool flatten = true;        // before that, move runs so that less lies close to the budget
  bool bound = true;          // stop where a bound shows that nothing is left to gain
  bool coarse_bound = true;   // of two bounds, that of every plan of the large storages
  bool windows = true;        // plans from the relaxation that bounds are proven with
  bool polish = true;         // what is close to such a plan is repaired and improved
  bool packable = true;       // orders of the same runs for which addresses are easier to find
};

struct PlanOptions {
  int64_t budget_bytes = kNoBudget;  // bounds the peak, externals included
  std::string strategy = "auto";     // a name from strategies()
  int64_t every_k = 0;               // every_k: boundaries per segment; 0 = the square root of all
  // Fit addresses too, not only live bytes: externals and an arena within the budget. The plan comes
  // with its addresses.
  bool placed = false;
  // For strategies that search. It is turned into an amount of counted work that an idle machine does
  // well within it; four times as much CPU time ends the search even if counted work is left.
  double time_limit_seconds = 2.0;
  bool keep_order = false;           // first runs stay in the order of the graph
  SearchStages stages = {};          // of strategies that search
  // Orders a search may look at. If set, the time is not looked at at all.
  int64_t max_orders = 0;
  uint64_t seed = 1;                 // same graph, options and seed: same plan
  // Orders of more runs are not built: recompute_all on a deep graph grows quadratically. 0: some
  // millions, for which there is memory.
  int64_t max_runs = 0;
  std::function<void(const PlanProgress&)> progress = {};  // called often; must be quick
  // Asked often, must be quick and must not throw: true ends a search as if its time were up.
  std::function<bool()> stop = {};
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

// An order of ops, with repeats and with moves between them, and what is known about it.
struct Plan {
  std::vector<OpId> order;
  std::string strategy;   // that made it; for auto, the one that won
  bool feasible = false;  // peak_bytes <= the budget; with `placed`, the arena as well
  int64_t peak_bytes = 0;
  int64_t time_ns = 0;
  std::optional<int64_t> lower_bound_time_ns;  // proven; none where none is known
  // Proven for plans that neither pack nor offload, where this one was free to.
  std::optional<int64_t> bound_without_moves_ns;
  std::optional<Floor> floor;  // of the graph, where the strategy has looked for it anyway
  // Of rewrite(graph, order): with `placed`, if feasible; else where it was found on the way and has
  // no waste.
  std::optional<Placement> placement;
  std::vector<Decision> decisions;             // at most one for a storage
  std::string note;                            // one sentence, where there is something to say
};

// One row of the table of strategies.
struct Strategy {
  std::string_view name;
  std::string_view summary;  // one line, for --help
  Plan (*plan)(const Graph&, const PlanOptions&, Effort&);
  bool searches = false;  // within the time limit, and can go on from one of its plans
};

// In the order in which the literature grew; "auto" comes last.
std::span<const Strategy> strategies();

// Plans with options.strategy. Strategies that search may pack and offload values where the graph says
// how; with_moves() in moves.h leaves it fewer ways. Lack of memory is not a failure: the result says if it is feasible.
// Throws Error for an unknown strategy or a negative budget.
Plan plan(const Graph& graph, const PlanOptions& options = {});
// The same, charged to an effort and ended by it instead of by four times the time limit.
Plan plan(const Graph& graph, const PlanOptions& options, Effort& effort);

// The step as the plain framework runs it: the given order, nothing recomputed, no reuse. A budget
// of "50%" means half of this peak.
struct Baseline {
  int64_t peak_bytes = 0;
  int64_t time_ns = 0;
};
Baseline keep_all_baseline(const Graph& graph);

// The least peak that any of our constructions reaches; the step's time does not count. Ends where plan() with
// these options would: their time limit and `stop` count, nothing else.
Floor floor(const Graph& graph, const PlanOptions& limits = {});
// The same, without paying for it again where the plan has it.
Floor floor(const Graph& graph, const Plan& plan, const PlanOptions& limits = {});

}  // namespace remat
