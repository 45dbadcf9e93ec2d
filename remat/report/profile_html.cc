// SPDX-License-Identifier: Apache-2.0

// The page of a profile: one file without scripts, so that it can be mailed and archived.

#include <fmt/format.h>


#include "remat/core/units.h"
#include "remat/report/html.h"
#include "remat/report/numbers.h"
#include "remat/report/profile_report.h"

namespace remat {
namespace {

void add_table(std::string& out, const char* what, const std::vector<ProfileRow>& rows,
               const ProfileReport& report) {
  out += fmt::format(
      "<h2>By {}</h2><table><tr><th>{}</th><th>at the peak</th><th>share</th><th>forward</th>"
      "<th>backward</th><th>share</th><th>ops</th></tr>",
      what, what);
  for (const ProfileRow& row : rows) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        html_escaped(row.name), format_bytes(row.bytes), share(row.bytes, report.keep_all_peak_bytes),
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
      html_escaped(report.model), html_style(), report.op_count, report.storage_count,
      format_bytes(report.keep_all_peak_bytes), html_escaped(report.peak_op),
      format_bytes(report.eager_peak_bytes), format_ns(report.op_time_ns),
      format_ns(report.step_ns));
  out += "<h2>Bytes over the ops of the step</h2>" +
         timeline_svg(report.timeline, {.top_bytes = report.keep_all_peak_bytes});
  add_table(out, "role", report.roles, report);
  add_table(out, "phase", report.phases, report);
  add_table(out, "layer", report.layers, report);
  add_table(out, "kind of op", report.kinds, report);
  return out + "</html>\n";
}

}  // namespace remat
