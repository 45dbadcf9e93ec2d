// SPDX-License-Identifier: Apache-2.0

// The page of a profile: one file without scripts, so that it can be mailed and archived.

#include <fmt/format.h>

#include <algorithm>

#include "remat/core/units.h"
#include "remat/report/numbers.h"
#include "remat/report/profile_report.h"

namespace remat {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "td,th{padding:.15rem .8rem;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left;font-family:monospace}"
    "svg{width:100%;height:auto;background:#fafafa}"
    ".key span{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}";

// From below: what lives through the step first. Colours that are told apart without red and green.
struct Layer {
  const char* name;
  const char* colour;
  int64_t (*bytes)(const Moment&);
};
template <Role role>
int64_t of_role(const Moment& moment) {
  return moment.by_role[static_cast<size_t>(role)];
}
constexpr Layer kLayers[] = {
    {"param", "#4477aa", of_role<Role::param>},
    {"buffer", "#66ccee", of_role<Role::buffer>},
    {"input", "#bbbbbb", of_role<Role::input>},
    {"optimizer_state", "#aa3377", of_role<Role::optimizer_state>},
    {"activation", "#ee9944", of_role<Role::activation>},
    {"gradient", "#228833", of_role<Role::gradient>},
    {"temporary", "#ccbb44", of_role<Role::temporary>},
    {"workspace", "#555555", [](const Moment& moment) { return moment.workspace_bytes; }},
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

constexpr double kWidth = 1000;
constexpr double kHeight = 320;

// Resident bytes over the ops, stacked by role.
std::string timeline_svg(const ProfileReport& report) {
  const size_t count = report.timeline.size();
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role='img'><title>Bytes over ops</title>",
                                kWidth, kHeight);
  const auto x = [&](size_t i) {
    return kWidth * static_cast<double>(i) / static_cast<double>(std::max<size_t>(count, 1));
  };
  const auto y = [&](int64_t bytes) {
    return kHeight * (1 - static_cast<double>(bytes) /
                              static_cast<double>(std::max<int64_t>(report.keep_all_peak_bytes, 1)));
  };
  std::vector<int64_t> below(count, 0);
  for (const Layer& layer : kLayers) {
    std::string upper, lower;
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      const int64_t bottom = below[i];
      below[i] += layer.bytes(report.timeline[i]);
      any = any || below[i] > bottom;
      upper += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(i), y(below[i]), x(i + 1), y(below[i]));
      lower = fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(i + 1), y(bottom), x(i), y(bottom)) + lower;
    }
    if (any) svg += fmt::format("<polygon fill='{}' points='{}{}'/>", layer.colour, upper, lower);
  }
  return svg + "</svg>";
}

void add_table(std::string& out, const char* what, const std::vector<ProfileRow>& rows,
               const ProfileReport& report) {
  out += fmt::format(
      "<h2>By {}</h2><table><tr><th>{}</th><th>at the peak</th><th>share</th><th>forward</th>"
      "<th>backward</th><th>share</th><th>ops</th></tr>",
      what, what);
  for (const ProfileRow& row : rows) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        escaped(row.name), format_bytes(row.bytes), share(row.bytes, report.keep_all_peak_bytes),
        format_ns(row.forward_ns), format_ns(row.backward_ns),
        share(row.time_ns(), report.op_time_ns), row.ops);
  }
  out += "</table>";
}

}  // namespace

std::string profile_html(const ProfileReport& report) {
  std::string out = fmt::format(
      "<!doctype html><html lang='en'><meta charset='utf-8'><title>{0}</title><style>{1}</style>"
      "<h1>{0}</h1><p>{2} ops, {3} storages. Everything kept, the step needs <b>{4}</b>, at {5}; "
      "plain LibTorch was counted at {6}. The ops take {7}, the whole replayed step {8}.</p>",
      escaped(report.model), kStyle, report.op_count, report.storage_count,
      format_bytes(report.keep_all_peak_bytes), escaped(report.peak_op),
      format_bytes(report.eager_peak_bytes), format_ns(report.op_time_ns),
      format_ns(report.step_ns));
  out += "<h2>Bytes over the ops of the step</h2>" + timeline_svg(report) + "<p class='key'>";
  for (const Layer& layer : kLayers) {
    out += fmt::format("<span style='background:{}'></span>{}", layer.colour, layer.name);
  }
  out += "</p>";
  add_table(out, "role", report.roles, report);
  add_table(out, "phase", report.phases, report);
  add_table(out, "layer", report.layers, report);
  add_table(out, "kind of op", report.kinds, report);
  return out + "</html>\n";
}

}  // namespace remat
