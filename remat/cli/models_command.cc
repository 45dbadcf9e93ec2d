// SPDX-License-Identifier: Apache-2.0

// remat models: the zoo, one line each.

#include <iomanip>
#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/files.h"
#include "remat/cli/model_task.h"
#include "remat/core/error.h"

namespace remat {
namespace {

int run(const std::string& json) {
  std::string text;
  nlohmann::json list = nlohmann::json::array();
  for (const models::ZooEntry& entry : models::zoo()) {
    text += detail::concat(std::left, std::setw(17), entry.name, std::right, std::setw(7), std::fixed,
                           std::setprecision(1),
                           static_cast<double>(entry.published_parameters) / 1e6, " M  ", std::left,
                           std::setw(45), size_label(entry.defaults), "  ", entry.paper, "\n");
    list.push_back({{"model", entry.name},
                    {"description", entry.description},
                    {"paper", entry.paper},
                    {"parameters", entry.published_parameters + entry.head_parameters},
                    {"published_parameters", entry.published_parameters},
                    {"defaults", size_json(entry.defaults)}});
  }
  if (!json.empty()) write_json(json, {{"models", list}});
  if (json != "-") write_file("-", text);
  return kDone;
}

}  // namespace

void add_models_command(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "models", "The models that profile, plan and run know: parameters, default sizes, paper");
  add_json_option(*command, *json);
  command->callback([json, &exit_code] { exit_code = run(*json); });
}

}  // namespace remat
