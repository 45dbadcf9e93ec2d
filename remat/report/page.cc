// SPDX-License-Identifier: Apache-2.0
#include "remat/report/page.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "remat/core/error.h"
#include "remat/report/page_files.h"

namespace remat {
namespace {

// JSON has these characters in strings only, where an escape means the same. Without them a script
// element cannot end, nor a comment begin.
std::string script_safe(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    switch (c) {
      case '<': out += "\\u003c"; break;
      case '>': out += "\\u003e"; break;
      case '&': out += "\\u0026"; break;
      default: out += c;
    }
  }
  return out;
}

// The browser itself refuses whatever a page would load or send.
constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string page_html(std::string_view page, const std::string& title, const nlohmann::json& data) {
  constexpr bool kAscii = true;
  const std::string json = data.dump(-1, ' ', kAscii, nlohmann::json::error_handler_t::replace);
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n",
      kPolicy, html_escaped(title));
  out += fmt::format("<style>\n{}\n{}</style>\n</head>\n", kChartStyle, kPageStyle);
  out += fmt::format(
      "<body data-page=\"{0}\">\n<main id=\"main\"><h1>{1}</h1>\n"
      "<noscript><p>This page draws its charts and tables with a script, which this reader does not run.</p>"
      "</noscript></main>\n",
      html_escaped(page), html_escaped(title));
  out += "<script type=\"application/json\" id=\"data\">" + script_safe(json) + "</script>\n";
  if (*kChartScript != '\0') {
    out += fmt::format("<script>\n/*\nuPlot\n{}*/\n{}</script>\n", kChartLicence, kChartScript);
  }
  // A module: strict, run when all above is there, its names its own.
  out += fmt::format("<script type=\"module\">\n/* remat, Apache-2.0 */\n{}</script>\n", kPageScript);
  return out + "</body>\n</html>\n";
}

void save_page(const std::string& html, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << html << std::flush;
  if (!file) {
    throw Error(detail::concat("[save_html] cannot write ", path, ": ", std::strerror(errno)));
  }
}

}  // namespace remat
