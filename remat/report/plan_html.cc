// SPDX-License-Identifier: Apache-2.0
#include "remat/report/plan_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/report/html.h"
#include "remat/report/numbers.h"

namespace remat {
namespace {

// What recomputing costs in one layer.
struct Extra {
  std::string layer;
  int64_t runs = 0;
  int64_t time_ns = 0;
};

std::vector<Extra> extra_by_layer(const Graph& graph, const Schedule& schedule) {
  std::map<std::string, Extra> found;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind == StepKind::recompute) {
      const Op& op = graph.op(step.op);
      Extra& extra = found[op.scope];
      ++extra.runs;
      extra.time_ns += op.time_ns;
    }
  }
  std::vector<Extra> rows;
  for (auto& [layer, extra] : found) {
    extra.layer = layer.empty() ? "(no layer)" : layer;
    rows.push_back(extra);
  }
  std::ranges::stable_sort(rows, std::greater(), &Extra::time_ns);
  return rows;
}

TimelineAxes axes_for(int64_t top_bytes, int64_t budget_bytes) {
  const bool drawn = budget_bytes != kNoBudget;
  return {.top_bytes = drawn ? std::max(top_bytes, budget_bytes) : top_bytes,
          .budget_bytes = drawn ? std::optional(budget_bytes) : std::nullopt};
}

}  // namespace

std::string plan_svg(const Graph& graph, const Schedule& schedule, int64_t budget_bytes) {
  const Simulation planned = simulate(graph, schedule);
  std::string svg = timeline_svg(planned.timeline, axes_for(planned.peak_bytes, budget_bytes));
  // Outside of a page it must say what it is.
  return svg.insert(std::string_view("<svg").size(), " xmlns='http://www.w3.org/2000/svg'");
}

std::string plan_html(const Graph& graph, const Schedule& schedule, int64_t budget_bytes,
                      const std::string& title) {
  const Simulation plain = simulate(graph, rewrite(graph, given_order(graph), {.reuse = false}));
  const Simulation planned = simulate(graph, schedule);
  const TimelineAxes axes = axes_for(std::max(plain.peak_bytes, planned.peak_bytes), budget_bytes);
  std::string out = fmt::format(
      "<!doctype html><html lang='en'><meta charset='utf-8'><title>{0}</title><style>{1}</style>"
      "<h1>{0}</h1><p>{2} ops. Everything kept, the step needs <b>{3}</b> and its ops take {4}; as planned "
      "<b>{5}</b> ({6}) and {7} ({8}).</p>",
      html_escaped(title), html_style(), graph.ops.size(), format_bytes(plain.peak_bytes),
      format_ns(plain.time_ns), format_bytes(planned.peak_bytes),
      share(planned.peak_bytes, plain.peak_bytes), format_ns(planned.time_ns),
      share(planned.time_ns, plain.time_ns));
  out += "<h2>Plain</h2>" + timeline_svg(plain.timeline, axes);
  out += "<h2>Planned</h2>" + timeline_svg(planned.timeline, axes);
  const std::vector<Extra> rows = extra_by_layer(graph, schedule);
  if (!rows.empty()) {
    out += "<h2>Computed again</h2><table><tr><th>layer</th><th>ops</th><th>time</th><th>share</th></tr>";
    for (const Extra& row : rows) {
      out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                         html_escaped(row.layer), row.runs, format_ns(row.time_ns),
                         share(row.time_ns, plain.time_ns));
    }
    out += "</table>";
  }
  return out + "</html>\n";
}

}  // namespace remat
