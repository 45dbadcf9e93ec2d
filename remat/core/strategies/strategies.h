// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/core/effort.h"
#include "remat/core/plan.h"

namespace remat {

// One function and one file for each row of the table in strategies.cc; the contract is Strategy's.
// A strategy that does not look at the budget still reports whether it meets it. What takes more than time
// linear in the order it makes is charged to the effort of the whole plan and ends with it.

Plan plan_keep_all(const Graph& graph, const PlanOptions& options);
Plan plan_recompute_all(const Graph& graph, const PlanOptions& options);
Plan plan_every_k(const Graph& graph, const PlanOptions& options);
Plan plan_selective(const Graph& graph, const PlanOptions& options);
Plan plan_mutwo(const Graph& graph, const PlanOptions& options, Effort& effort);
Plan plan_search(const Graph& graph, const PlanOptions& options, Effort& effort);
Plan plan_optimal(const Graph& graph, const PlanOptions& options, Effort& effort);
Plan plan_chain_dp(const Graph& graph, const PlanOptions& options, Effort& effort);
Plan plan_auto(const Graph& graph, const PlanOptions& options, Effort& effort);

// Moves only, nothing is run again: for comparison.
Plan plan_pack_only(const Graph& graph, const PlanOptions& options, Effort& effort);
Plan plan_offload_only(const Graph& graph, const PlanOptions& options, Effort& effort);

// A plan that may pack and offload as well, at least as good as the one given, which does not.
Plan plan_with_moves(const Graph& graph, const PlanOptions& options, Plan without, Effort& effort);

// What `optimal` and `auto` are: the best plan of all, under the name of the strategy that found it.
Plan plan_best(const Graph& graph, const PlanOptions& options, Effort& effort);

// keep_all's plan under the name of a strategy that has none of its own, and why.
Plan keep_all_instead(const Graph& graph, const PlanOptions& options, std::string_view strategy,
                      std::string note);

// The plan behind floor(): the lowest peak we know how to reach. The step's time does not
// count. Of the options, `keep_order` and `stages` do.
Plan plan_for_floor(const Graph& graph, const PlanOptions& options, Effort& effort);

// `search` as larger graphs see it: without looking at every plan of a small one first.
Plan plan_local_search(const Graph& graph, const PlanOptions& options, Effort& effort);

// Goes on from an order that fits a somewhat larger budget than that of the options: made to fit,
// then searched for a small part of the time limit. Not feasible if it gets stuck.
Plan continue_search(const Graph& graph, const PlanOptions& options, std::vector<OpId> order,
                     Effort& effort);

// The longest order that may be built.
int64_t most_runs(const PlanOptions& options);

// Rewrites and simulates an order: fills peak, time and feasible.
Plan make_plan(const Graph& graph, std::string_view strategy, std::vector<OpId> order,
               int64_t budget_bytes);

// Each op's first run, in the order in which they come.
std::vector<OpId> first_runs(const Graph& graph, const std::vector<OpId>& order);
bool keeps_order(const Graph& graph, const std::vector<OpId>& order);

}  // namespace remat
