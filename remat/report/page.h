// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// Pages: one HTML file each, that needs nothing but itself. No server, no network; it may be mailed and
// archived.
//
// A page is data and a script. The data are the JSON that the tool prints, so that a number has one
// source; the scripts lie in remat/report/page and are compiled into the library. A new page is
//   - remat/report/page/NAME.js with  pages.NAME = (data, main) => { ... }  that fills the element `main`,
//     from the parts in parts.js, table.js and chart.js;
//   - its name in the list in remat/report/CMakeLists.txt;
//   - page_html("NAME", title, json) where the tool or the library makes it;
//   - a test in tests/browser.
namespace remat {

// Nothing in the data can end the element they are in, whatever names hold: quotes, angle brackets,
// bytes that are no UTF-8.
std::string page_html(std::string_view page, const std::string& title, const nlohmann::json& data);

// For text and for attributes.
std::string html_escaped(std::string_view text);

// Writes a page, replacing a file that is there. Throws Error.
void save_page(const std::string& html, const std::string& path);

}  // namespace remat
