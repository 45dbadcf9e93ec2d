// SPDX-License-Identifier: Apache-2.0

// What the page of a plan shows beyond the sums of its report.

#include <nlohmann/json.hpp>

#include "remat/core/explain.h"
#include "remat/core/rewrite.h"
#include "remat/report/details_json.h"
#include "remat/report/layer_decisions.h"
#include "remat/report/numbers.h"
#include "remat/report/plan_report.h"

namespace remat {
namespace {


// A table of the values that there was something to decide about.
nlohmann::json values_json(const Graph& graph, const std::vector<Explanation>& explanations, int depth) {
  nlohmann::json storage = nlohmann::json::array(), bytes = nlohmann::json::array(), role = nlohmann::json::array(), layer = nlohmann::json::array(),
       op = nlohmann::json::array(), action = nlohmann::json::array(), recomputes = nlohmann::json::array(), reason = nlohmann::json::array();
  for (const Explanation& each : explanations) {
    if (each.action == Action::none) continue;
    const Storage& value = graph.storage(each.storage);
    storage.push_back(value.name);
    bytes.push_back(value.bytes);
    role.push_back(name(value.role));
    layer.push_back(layer_of(graph.op(*value.creator).scope, depth));
    op.push_back(index(*value.creator));
    action.push_back(name(each.action));
    recomputes.push_back(each.recomputes);
    reason.push_back(each.sentence);
  }
  return {{"storage", std::move(storage)}, {"bytes", std::move(bytes)},
          {"role", std::move(role)},       {"layer", std::move(layer)},
          {"op", std::move(op)},           {"action", std::move(action)},
          {"recomputes", std::move(recomputes)}, {"reason", std::move(reason)}};
}

}  // namespace

nlohmann::json plan_details_json(const PlanDetails& step, int depth) {
  const Graph& graph = step.graph;
  const Schedule keep_all = rewrite(graph, given_order(graph), {.reuse = false});
  const Plan every_k = plan(graph, {.strategy = "every_k"});
  const std::vector<Explanation> explanations = explain(graph, step.plan);
  return {{"ops", ops_json(graph)},
          {"schedules",
           {{"keep_all", schedule_json(graph, keep_all)},
            {"every_k", schedule_json(graph, rewrite(graph, every_k.order), {.by_role = false})},
            {"planned", schedule_json(graph, step.schedule, {.measured_bytes = step.measured_bytes})}}},
          {"arena", arena_json(graph, step.schedule, step.placement)},
          {"layers", layer_decisions_json(decisions_by_layer(graph, step.plan, explanations, depth))},
          {"values", values_json(graph, explanations, depth)}};
}

}  // namespace remat
