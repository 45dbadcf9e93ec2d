// SPDX-License-Identifier: Apache-2.0
#include "remat/report/layer_decisions.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "remat/core/moves.h"
#include "remat/core/units.h"
#include "remat/report/numbers.h"
#include "remat/report/table.h"

namespace remat {
namespace {

std::string amount(int64_t count, int64_t bytes) {
  return count == 0 ? "-" : std::to_string(count) + " (" + format_bytes(bytes) + ")";
}

struct Amounts {
  int64_t LayerDecisions::*values;
  int64_t LayerDecisions::*bytes;
};

Amounts amounts_of(Action action) {
  switch (action) {
    case Action::recompute: return {&LayerDecisions::recomputed_values, &LayerDecisions::recomputed_bytes};
    case Action::pack: return {&LayerDecisions::packed_values, &LayerDecisions::packed_bytes};
    case Action::offload: return {&LayerDecisions::offloaded_values, &LayerDecisions::offloaded_bytes};
    default: return {&LayerDecisions::kept_values, &LayerDecisions::kept_bytes};
  }
}

}  // namespace

std::vector<LayerDecisions> decisions_by_layer(const Graph& graph, const Plan& plan,
                                               const std::vector<Explanation>& explanations, int depth) {
  std::vector<LayerDecisions> layers;
  std::map<std::string, size_t> rows;
  const auto row_of = [&](const Op& op) -> LayerDecisions& {
    const auto [at, added] = rows.try_emplace(layer_of(op.scope, depth), layers.size());
    if (added) layers.push_back({.layer = at->first});
    return layers[at->second];
  };
  for (const Explanation& explanation : explanations) {
    if (explanation.action == Action::none) continue;
    const Storage& storage = graph.storage(explanation.storage);
    LayerDecisions& row = row_of(graph.op(*storage.creator));
    const Amounts amounts = amounts_of(explanation.action);
    ++(row.*amounts.values);
    row.*amounts.bytes += storage.bytes;
  }
  std::vector<bool> seen(graph.ops.size(), false);
  for (const OpId id : plan.order) {
    const OpId behind = op_behind(graph, id);
    const bool runs = graph.original(id) == behind;
    const bool again = runs && seen[index(behind)];
    if (runs) seen[index(behind)] = true;
    if (runs && !again) continue;
    LayerDecisions& row = row_of(graph.op(behind));
    if (again) ++row.recomputed_ops;
    row.extra_ns += graph.op(id).time_ns;
  }
  return layers;
}

std::string layer_decisions_text(const std::vector<LayerDecisions>& layers) {
  const bool moved = std::ranges::any_of(layers, [](const LayerDecisions& row) {
    return row.packed_values + row.offloaded_values > 0;
  });
  std::vector<std::string> titles = {"layer", "kept", "recomputed", "ops run again", "extra time"};
  if (moved) titles.insert(titles.begin() + 3, {"packed", "offloaded"});
  Table table(titles);
  const auto add = [&](const LayerDecisions& row) {
    std::vector<std::string> cells = {row.layer, amount(row.kept_values, row.kept_bytes),
                                      amount(row.recomputed_values, row.recomputed_bytes),
                                      row.recomputed_ops > 0 ? std::to_string(row.recomputed_ops) : "-",
                                      row.extra_ns > 0 ? format_ns(row.extra_ns) : "-"};
    if (moved) {
      cells.insert(cells.begin() + 3, {amount(row.packed_values, row.packed_bytes),
                                       amount(row.offloaded_values, row.offloaded_bytes)});
    }
    table.add_row(cells);
  };
  LayerDecisions sum{.layer = "all layers"};
  for (const LayerDecisions& row : layers) {
    add(row);
    sum.kept_values += row.kept_values;
    sum.kept_bytes += row.kept_bytes;
    sum.recomputed_values += row.recomputed_values;
    sum.recomputed_bytes += row.recomputed_bytes;
    sum.packed_values += row.packed_values;
    sum.packed_bytes += row.packed_bytes;
    sum.offloaded_values += row.offloaded_values;
    sum.offloaded_bytes += row.offloaded_bytes;
    sum.recomputed_ops += row.recomputed_ops;
    sum.extra_ns += row.extra_ns;
  }
  add(sum);
  return table.text();
}

nlohmann::json layer_decisions_json(const std::vector<LayerDecisions>& layers) {
  nlohmann::json list = nlohmann::json::array();
  for (const LayerDecisions& row : layers) {
    list.push_back({{"layer", row.layer},
                    {"kept_values", row.kept_values},
                    {"kept_bytes", row.kept_bytes},
                    {"recomputed_values", row.recomputed_values},
                    {"recomputed_bytes", row.recomputed_bytes},
                    {"packed_values", row.packed_values},
                    {"packed_bytes", row.packed_bytes},
                    {"offloaded_values", row.offloaded_values},
                    {"offloaded_bytes", row.offloaded_bytes},
                    {"recomputed_ops", row.recomputed_ops},
                    {"extra_ns", row.extra_ns}});
  }
  return list;
}

}  // namespace remat
