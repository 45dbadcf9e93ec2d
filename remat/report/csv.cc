// SPDX-License-Identifier: Apache-2.0
#include "remat/report/csv.h"

#include <nlohmann/json.hpp>

namespace remat {
namespace {

using Json = nlohmann::json;

std::string cell_of(const Json& value) {
  if (value.is_null()) return {};
  const std::string text = value.is_string()
                               ? value.get<std::string>()
                               : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.find_first_of("\",\r\n") == std::string::npos && text == text.substr(0, text.find('\0')) &&
      !text.starts_with(' ') && !text.ends_with(' ')) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

const std::vector<std::string> kMethodColumns = {
    "method",         "chosen_strategy", "feasible",
    "predicted_peak_bytes", "measured_peak_bytes", "reserved_bytes",
    "resident_bytes", "outside_allocations", "recomputed_ops", "packed_values", "offloaded_bytes",
    "plan_seconds",   "saved_plan",      "step_ns",
    "time_ratio_to_eager", "same_loss",  "same_gradients",
    "same_parameters", "same_optimizer_state", "same_buffers",
    "same_rng",       "fault"};

const std::vector<std::string> kCostColumns = {
    "created_bytes",     "saved_bytes",       "first_forward_use", "last_forward_use", "first_backward_use",
    "last_backward_use", "idle_ns",           "remake_ns",         "saved_bytes_per_ms"};

const std::vector<std::string> kDecisionColumns = {"layer",            "kept_values",    "kept_bytes",
                                                   "recomputed_values", "recomputed_bytes",
                                                   "packed_values",    "packed_bytes",
                                                   "offloaded_values", "offloaded_bytes",
                                                   "recomputed_ops",   "extra_ns"};

std::vector<std::string> joined(std::vector<std::string> columns, const std::vector<std::string>& more) {
  columns.insert(columns.end(), more.begin(), more.end());
  return columns;
}

// What runs in which order, and what is resident meanwhile. Without numbers of ops, it is every op once.
std::string runs_csv(const Json& ops, const Json& runs) {
  const Json& names = ops.at("name");
  std::vector<std::string> columns = {"op", "layer", "bytes"};
  Json table = {{"bytes", runs.at("bytes")}, {"op", Json::array()}, {"layer", Json::array()}};
  if (runs.contains("moves")) {
    columns.push_back("move");
    table["move"] = std::vector<std::string>(runs.at("bytes").size());
    for (const Json& move : runs.at("moves")) table["move"][move[0].get<size_t>()] = move[1];
  }
  for (size_t i = 0; i < runs.at("bytes").size(); ++i) {
    const size_t op = runs.contains("op") ? runs.at("op")[i].get<size_t>() : i;
    table["op"].push_back(names[op]);
    table["layer"].push_back(ops.at("layer")[op]);
  }
  for (const auto& [role, bytes] : runs.at("by_role").items()) {
    columns.push_back(role);
    // A role whose bytes never change is one number in the JSON.
    table[role] = bytes.is_array() ? bytes : Json(std::vector<Json>(table["bytes"].size(), bytes));
  }
  if (runs.contains("measured_bytes")) {
    columns.push_back("measured_bytes");
    table["measured_bytes"] = runs.at("measured_bytes");
  }
  return columns_csv(table, columns);
}

// What the page of a plan shows in tables and charts.
void add_plan_details(std::vector<CsvTable>& tables, const Json& details) {
  if (!details.contains("values")) return;
  tables.push_back({"layers", csv_text(details.at("layers"), kDecisionColumns)});
  tables.push_back({"values", columns_csv(details.at("values"), {"storage", "layer", "role", "bytes", "action",
                                                                 "recomputes", "reason"})});
  tables.push_back({"runs", runs_csv(details.at("ops"), details.at("schedules").at("planned"))});
  Json arena = details.at("arena");
  for (Json& role : arena.at("role")) role = Json(arena.at("roles").at(role.get<size_t>()));
  tables.push_back({"arena", columns_csv(arena, {"offset", "bytes", "from", "to", "role", "op"})});
}

}  // namespace

std::string csv_text(const Json& rows, const std::vector<std::string>& columns) {
  std::string out;
  for (const std::string& column : columns) out += (out.empty() ? "" : ",") + cell_of(column);
  out += "\n";
  for (const Json& row : rows) {
    std::string line;
    for (const std::string& column : columns) {
      if (&column != &columns.front()) line += ",";
      if (row.contains(column)) line += cell_of(row.at(column));
    }
    out += line + "\n";
  }
  return out;
}

std::string columns_csv(const Json& table, const std::vector<std::string>& columns) {
  Json rows = Json::array();
  for (const std::string& column : columns) {
    if (!table.contains(column)) continue;
    const Json& values = table.at(column);
    while (rows.size() < values.size()) rows.push_back(Json::object());
    for (size_t i = 0; i < values.size(); ++i) rows[i][column] = values[i];
  }
  return csv_text(rows, columns);
}

std::vector<CsvTable> profile_csv(const Json& profile, const Json& details) {
  const std::vector<std::string> sums = {"name",        "peak_bytes",   "forward_ns",
                                         "backward_ns", "optimizer_ns", "ops"};
  std::vector<CsvTable> tables = {
      {"roles", csv_text(profile.at("by_role"), {"name", "peak_bytes"})},
      {"phases", csv_text(profile.at("by_phase"), sums)},
      {"layers", csv_text(profile.at("by_layer"), joined(sums, kCostColumns))},
      {"kinds", csv_text(profile.at("by_kind"), sums)}};
  if (details.contains("ops")) {
    tables.push_back({"ops", columns_csv(details.at("ops"),
                                         joined({"name", "kind", "layer", "phase", "time_ns", "workspace_bytes"},
                                                kCostColumns))});
    tables.push_back({"timeline", runs_csv(details.at("ops"), details.at("timeline"))});
  }
  return tables;
}

std::vector<CsvTable> plans_csv(const Json& plans, const Json& details) {
  std::vector<CsvTable> tables = {
      {"plans", csv_text(plans, {"graph", "strategy", "chosen_strategy", "budget_bytes", "feasible",
                                 "peak_bytes", "peak_op", "keep_all_peak_bytes", "floor_bytes",
                                 "floor_op", "time_ns", "keep_all_time_ns", "lower_bound_time_ns",
                                 "bound_without_moves_ns", "recomputed_ops", "packed_values", "offloaded_values",
                                 "offloaded_bytes", "waited_ns", "channel_bytes", "arena_bytes", "max_live_bytes", "plan_seconds",
                                 "note"})}};
  add_plan_details(tables, details);
  return tables;
}

std::vector<CsvTable> run_csv(const Json& run, const Json& details) {
  Json methods = Json::array({{{"method", "plain"},
                               {"feasible", true},
                               {"measured_peak_bytes", run.at("eager_peak_bytes")},
                               {"resident_bytes", run.at("eager_resident_bytes")},
                               {"step_ns", run.at("eager_step_ns")},
                               {"time_ratio_to_eager", 1}}});
  methods.push_back(run);
  methods.back()["method"] = run.at("strategy");
  for (const Json& method : run.value("compared", Json::array())) methods.push_back(method);
  for (Json& method : methods) {
    const Json compared = method.value("bit_identical", Json::object());
    for (const auto& [what, same] : compared.items()) method["same_" + what] = same;
  }
  std::vector<CsvTable> tables = {{"methods", csv_text(methods, kMethodColumns)}};
  add_plan_details(tables, details);
  return tables;
}

std::vector<CsvTable> fit_csv(const Json& fit) {
  std::vector<std::string> columns = {"method",         "size",    "predicted_peak_bytes", "measured_peak_bytes",
                                      "reserved_bytes", "step_ns", "ns_per_sample",        "ns_per_token"};
  Json rows = Json::array();
  for (const char* method : {"plain", "planned"}) {
    rows.push_back(fit.at(method));
    rows.back()["method"] = method;
  }
  std::erase_if(columns, [&](const std::string& column) {
    return column.starts_with("ns_per_") && !rows.front().contains(column);
  });
  return {{"sizes", csv_text(rows, columns)}};
}

std::vector<CsvTable> explain_csv(const Json& explained) {
  return {{"layers", csv_text(explained.at("layers"), kDecisionColumns)},
          {"values", csv_text(explained.at("values"),
                              {"storage", "layer", "bytes", "action", "recomputes", "reason"})}};
}

std::vector<CsvTable> sweep_csv(const Json& sweep) {
  return {{"batches", csv_text(sweep.at("batches"),
                               {"batch", "plain_peak_bytes", "plain_estimated", "plain_fits", "plain_step_ns",
                                "plain_samples_per_second", "floor_bytes", "planned_budget_bytes",
                                "planned_fits", "planned_peak_bytes", "planned_step_ns", "planned_samples_per_second",
                                "recomputed_ops", "strategy", "fault"})},
          {"frontier", csv_text(sweep.at("frontier"),
                                {"strategy", "budget_bytes", "fits", "peak_bytes", "step_ns",
                                 "time_ratio", "recomputed_ops"})}};
}

}  // namespace remat
