// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace remat {

// --html and --details: a report with every op and value in it, as a page and as JSON. Both are made from
// the same object, so that they hold the same numbers.
struct PageOutput {
  std::string html;
  bool details = false;  // in the JSON too

  bool wants_details() const { return details || !html.empty(); }
};

// `what`: what there is to see on the page.
void add_page_options(CLI::App& command, PageOutput& output, const char* what);

// Writes the page, if it was asked for: the sums of a report in `json` and its `details`. With --details
// `json` has them too afterwards. Throws Error.
void write_page(const PageOutput& output, std::string_view page, const std::string& title,
                nlohmann::json& json, const nlohmann::json& details);

}  // namespace remat
