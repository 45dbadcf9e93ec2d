// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/page_output.h"

#include <nlohmann/json.hpp>

#include "remat/cli/files.h"
#include "remat/report/page.h"

namespace remat {

void add_page_options(CLI::App& command, PageOutput& output, const char* what) {
  command
      .add_option("--html", output.html,
                  std::string("Write a page that needs no network: ") + what + "; - is standard output")
      ->type_name("FILE");
  command.add_flag("--details", output.details,
                   "Let --json have all that the page shows: every op, run and value");
}

void write_page(const PageOutput& output, std::string_view page, const std::string& title,
                nlohmann::json& json, const nlohmann::json& details) {
  if (!output.wants_details()) return;
  nlohmann::json all = json;
  all.update(details);
  if (!output.html.empty()) write_file(output.html, page_html(page, title, all));
  if (output.details) json = std::move(all);
}

}  // namespace remat
