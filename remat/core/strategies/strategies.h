// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/core/effort.h"
#include "remat/core/exact/state_search.h"
#include "remat/core/plan.h"

namespace remat {

// One function and one file for each row of the table in strategies.cc; the contract is Strategy's.
// A strategy that does not look at the budget still reports whether it meets it. What searches is charged
// to the effort of the whole plan.

Plan plan_keep_all(const Graph& graph, const PlanOptions& options);
Plan plan_recompute_all(const Graph& graph, const PlanOptions& options);
Plan plan_every_k(const Graph& graph, const PlanOptions& options);
Plan plan_selective(const Graph& graph, const PlanOptions& options);
Plan plan_mutwo(const Graph& graph, const PlanOptions& options);
Plan plan_search(const Graph& graph, const PlanOptions& options, Effort& effort);
Plan plan_optimal(const Graph& graph, const PlanOptions& options, Effort& effort);
Plan plan_chain_dp(const Graph& graph, const PlanOptions& options);
Plan plan_auto(const Graph& graph, const PlanOptions& options, Effort& effort);

// What `optimal` and `auto` are: the best plan of all, under the name of the strategy that found it.
Plan plan_best(const Graph& graph, const PlanOptions& options, Effort& effort);

// mutwo's choice is quadratic in the number of candidates; above this many ops others do without it.
inline constexpr size_t kLargestForMutwo = 10'000;

// Its blocks and tables are linear but not cheap.
inline constexpr size_t kLargestForChainDp = 10'000;

// The plan behind floor(): the lowest peak we know how to reach, whatever it costs in time.
Plan plan_for_floor(const Graph& graph, bool keep_order, Effort& effort);

// Beyond this many ops a window model is seldom solved in its share of the default limit. Up to twice
// as many and a half that share goes to `search`; beyond, to what is not counted and grows with the graph.
inline constexpr size_t kMostWindowOps = 600;

// `search` as larger graphs see it: without looking at every plan of a small one first.
Plan plan_local_search(const Graph& graph, const PlanOptions& options, Effort& effort);

// Goes on from an order that fits a somewhat larger budget than that of the options: made to fit,
// then searched for a small part of the time limit. Not feasible if it gets stuck.
Plan continue_search(const Graph& graph, const PlanOptions& options, std::vector<OpId> order,
                     Effort& effort);

// search_states() with the freedom that the options leave, for as many states as their share of the
// time limit allows. Not complete where it does not apply.
StateSearchResult search_all_states(const Graph& graph, const PlanOptions& options, Effort& effort);

// Rewrites and simulates an order: fills peak, time and feasible.
Plan make_plan(const Graph& graph, std::string_view strategy, std::vector<OpId> order,
               int64_t budget_bytes);

// Each op's first run, in the order in which they come.
std::vector<OpId> first_runs(const Graph& graph, const std::vector<OpId>& order);
bool keeps_order(const Graph& graph, const std::vector<OpId>& order);

}  // namespace remat
