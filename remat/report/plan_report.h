// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "remat/core/explain.h"
#include "remat/core/graph.h"
#include "remat/core/plan.h"
#include "remat/core/schedule.h"
#include "remat/core/simulate.h"
#include "remat/report/text_style.h"

namespace remat {

// A planned step as a whole: what a page shows beyond the sums of a report.
struct PlanDetails {
  Graph graph;
  Plan plan;
  Schedule schedule;
  Placement placement;
  std::vector<int64_t> measured_bytes = {};  // while each run of the schedule ran; empty: not measured
};

// Everything there is to say about one plan, gathered once for the text and the JSON form.
struct PlanReport {
  std::string graph;  // a file's or a model's name
  std::string strategy;         // as asked for
  std::string chosen_strategy;  // that made the plan; differs for auto
  int64_t budget_bytes = 0;
  bool feasible = false;
  int64_t op_count = 0;
  int64_t storage_count = 0;
  int64_t external_bytes = 0;
  int64_t keep_all_peak_bytes = 0;
  int64_t keep_all_time_ns = 0;
  int64_t peak_bytes = 0;
  std::string peak_op;
  int64_t floor_bytes = 0;
  std::string floor_op;
  int64_t time_ns = 0;
  std::optional<int64_t> lower_bound_time_ns;
  std::optional<int64_t> bound_without_moves_ns;  // proven for plans that neither pack nor offload
  int64_t recomputed_ops = 0;                     // runs beyond the first of each op
  int64_t packed_values = 0;
  int64_t offloaded_values = 0;
  int64_t offloaded_bytes = 0;
  int64_t waited_ns = 0;  // for transfers, part of time_ns
  int64_t channel_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t max_live_bytes = 0;
  double plan_seconds = 0;
  std::string note;
  Moment keep_all_at_peak;  // what is resident where everything is kept, ...
  Moment at_peak;           // ... and in the plan

  Placement placement;
  std::shared_ptr<const PlanDetails> step = {};  // for a page; the caller's to fill
};

// Simulates and places the schedule; the caller fills what only it knows: graph, strategy,
// plan_seconds.
PlanReport report_plan(const Graph& graph, const Plan& plan, const Schedule& schedule,
                       const Floor& floor, int64_t budget_bytes);

std::string plan_text(const PlanReport& report, const TextStyle& style = {});
// Several plans of one graph, a row each.
std::string plan_table(const std::vector<PlanReport>& reports);
nlohmann::json plan_json(const PlanReport& report);
// What the page shows beyond that: "ops"; "schedules" with the runs of everything kept ("keep_all"), of the
// square root of n ("every_k") and of the plan ("planned"); "arena", its blocks; "layers" and "values", what
// becomes of them and why.
nlohmann::json plan_details_json(const PlanDetails& step, int depth = 2);

// Why a plan does not fit, on one line, with what would help.
std::string infeasible_message(const PlanReport& report);

std::string explain_text(const std::vector<Explanation>& explanations);
nlohmann::json explain_json(const Graph& graph, const std::vector<Explanation>& explanations);

}  // namespace remat
