// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace remat {

// Rows (an array of objects) as RFC 4180 has it: a header, one line for each row, quotes where a cell needs
// them. A missing or null cell is empty; numbers are those of the JSON, digit for digit.
std::string csv_text(const nlohmann::json& rows, const std::vector<std::string>& columns);

// The same of an object of columns of one length: {"name": ["conv", "relu"], "bytes": [4, 8]}.
std::string columns_csv(const nlohmann::json& table, const std::vector<std::string>& columns);

// One table of a report: "layers" becomes layers.csv.
struct CsvTable {
  std::string name;
  std::string text;
};

// Every table of what a command prints as JSON; `details` are what --details adds to it, or an empty object.
std::vector<CsvTable> profile_csv(const nlohmann::json& profile, const nlohmann::json& details);
// `plans` is an array. Details are those of the only one.
std::vector<CsvTable> plans_csv(const nlohmann::json& plans, const nlohmann::json& details);
std::vector<CsvTable> run_csv(const nlohmann::json& run, const nlohmann::json& details);
std::vector<CsvTable> fit_csv(const nlohmann::json& fit);
std::vector<CsvTable> explain_csv(const nlohmann::json& explained);
std::vector<CsvTable> sweep_csv(const nlohmann::json& sweep);

}  // namespace remat
