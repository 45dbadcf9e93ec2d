// SPDX-License-Identifier: Apache-2.0
#include "remat/report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "remat/core/moves.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/report/bar_chart.h"
#include "remat/report/numbers.h"
#include "remat/report/table.h"

namespace remat {
namespace {

// Rounded up, so that the text, typed in as a budget, is enough.
std::string enough_bytes(int64_t bytes) {
  std::string text = format_bytes(bytes);
  for (int64_t more = 1; parse_budget(text, 0) < bytes; more *= 2) {
    text = format_bytes(bytes + more);
  }
  return text;
}

// Two sizes for one sentence: to the byte where both would read the same.
struct Sizes {
  std::string less, more;
};
Sizes told_apart(int64_t less_bytes, int64_t more_bytes) {
  Sizes sizes{format_bytes(less_bytes), enough_bytes(more_bytes)};
  if (sizes.less != sizes.more) return sizes;
  return {fmt::format("{} B", less_bytes), fmt::format("{} B", more_bytes)};
}

std::string overhead(const PlanReport& report) {
  return fmt::format("{:+.2f} %",
                     percent(report.time_ns - report.keep_all_time_ns, report.keep_all_time_ns));
}

std::string strategy_label(const PlanReport& report) {
  if (report.strategy == report.chosen_strategy) return report.strategy;
  return fmt::format("{} ({})", report.strategy, report.chosen_strategy);
}

Moment moment_at_peak(const Graph& graph, const Schedule& schedule) {
  const Simulation simulation = simulate(graph, schedule);
  return simulation.timeline.empty() ? Moment{} : simulation.timeline[simulation.peak_step];
}

nlohmann::json moment_json(const Moment& moment) {
  nlohmann::json json = {{"workspace", moment.workspace_bytes}};
  for (size_t role = 0; role < kRoleCount; ++role) {
    json[std::string(name(static_cast<Role>(role)))] = moment.by_role[role];
  }
  return json;
}

// "12 ops recomputed, 3 values packed, 2 offloaded (1.5 GiB)"
std::string extra_work(const PlanReport& report) {
  std::string text = fmt::format("{} ops recomputed", report.recomputed_ops);
  if (report.packed_values > 0) text += fmt::format(", {} values packed", report.packed_values);
  if (report.offloaded_values > 0) {
    text += fmt::format(", {} offloaded ({})", report.offloaded_values, format_bytes(report.offloaded_bytes));
  }
  if (report.waited_ns > 0) text += fmt::format(", {} of it waiting for transfers", format_ns(report.waited_ns));
  return text;
}

std::string gap(const PlanReport& report) {
  if (report.bound_without_moves_ns) {
    return fmt::format("without packing and offloading, no plan takes less than {}",
                       format_ns(*report.bound_without_moves_ns));
  }
  if (!report.lower_bound_time_ns) return "no bound known";
  return fmt::format(
      "at most {:.2f} % above the optimum (bound {})",
      percent(report.time_ns - *report.lower_bound_time_ns, *report.lower_bound_time_ns),
      format_ns(*report.lower_bound_time_ns));
}

}  // namespace

PlanReport report_plan(const Graph& graph, const Plan& plan, const Schedule& schedule,
                       const Floor& floor, int64_t budget_bytes) {
  const Baseline baseline = keep_all_baseline(graph);
  const Peak peak = simulate_peak(graph, schedule);
  // Addresses for what does not fit anyway are not worth a search.
  PlaceOptions place_options;
  if (peak.bytes > budget_bytes) place_options.time_limit_seconds = 0;
  const Placement placement =
      plan.placement ? *plan.placement : place(graph, schedule, place_options);
  PlanReport report;
  report.strategy = report.chosen_strategy = plan.strategy;
  report.budget_bytes = budget_bytes;
  report.feasible = plan.feasible;
  report.op_count = static_cast<int64_t>(graph.ops.size());
  report.storage_count = static_cast<int64_t>(graph.storages.size());
  report.external_bytes = graph.external_bytes();
  report.keep_all_peak_bytes = baseline.peak_bytes;
  report.keep_all_time_ns = baseline.time_ns;
  report.peak_bytes = peak.bytes;
  if (!schedule.steps.empty()) report.peak_op = op_label(graph, schedule.steps[peak.step].op);
  // What this plan reaches is reachable, whatever the floor's constructions found.
  report.floor_bytes = std::min(floor.bytes, peak.bytes);
  report.floor_op = floor.bytes <= peak.bytes ? op_label(graph, floor.op) : report.peak_op;
  report.time_ns = peak.time_ns;
  report.lower_bound_time_ns = plan.lower_bound_time_ns;
  report.bound_without_moves_ns = plan.bound_without_moves_ns;
  const OrderCounts extra = count_extra(graph, plan.order);
  report.recomputed_ops = extra.recomputed_ops;
  report.packed_values = extra.packed_values;
  report.offloaded_values = extra.offloaded_values;
  report.offloaded_bytes = extra.offloaded_bytes;
  report.waited_ns = simulate(graph, schedule).waited_ns;
  report.channel_bytes = placement.channel_bytes;
  report.arena_bytes = placement.arena_bytes;
  report.max_live_bytes = placement.max_live_bytes;
  report.placement = placement;
  report.note = plan.note;
  report.keep_all_at_peak = moment_at_peak(graph, rewrite(graph, given_order(graph), {.reuse = false}));
  report.at_peak = moment_at_peak(graph, schedule);
  return report;
}

std::string plan_text(const PlanReport& report, const TextStyle& style) {
  const int64_t whole = report.keep_all_peak_bytes;
  std::string out;
  const auto line = [&](std::string_view what, const std::string& amount, const std::string& more) {
    out += more.empty() ? fmt::format("{:<10} {:>10}\n", what, amount)
                        : fmt::format("{:<10} {:>10}   {}\n", what, amount, more);
  };
  out += fmt::format("{:<10} {} ({} ops, {} storages)\n", "graph", report.graph, report.op_count,
                     report.storage_count);
  out += fmt::format("{:<10} {}\n", "strategy", strategy_label(report));
  line("keep all", format_bytes(whole), format_ns(report.keep_all_time_ns));
  line("budget", format_bytes(report.budget_bytes), share(report.budget_bytes, whole));
  line("peak", format_bytes(report.peak_bytes),
       share(report.peak_bytes, whole) + ", set by " + report.peak_op);
  line("floor", format_bytes(report.floor_bytes),
       share(report.floor_bytes, whole) + ", set by " + report.floor_op);
  line("time", format_ns(report.time_ns),
       fmt::format("{}, {}", overhead(report), extra_work(report)));
  line("gap", "", gap(report));
  line("arena", format_bytes(report.arena_bytes),
       fmt::format("{} more than is ever live at once",
                   format_bytes(report.arena_bytes - report.max_live_bytes)));
  line("planned in", fmt::format("{:.2f} s", report.plan_seconds), "");
  if (!report.note.empty()) out += fmt::format("{:<10} {}\n", "note", report.note);
  out += "\n" + peak_chart(report.at_peak, &report.keep_all_at_peak, style);
  return out;
}

std::string plan_table(const std::vector<PlanReport>& reports) {
  const bool moved = std::ranges::any_of(
      reports, [](const PlanReport& report) { return report.packed_values + report.offloaded_values > 0; });
  std::vector<std::string> titles = {"strategy", "budget", "fits", "peak", "of keep-all", "time", "overhead",
                                     "recomputes", "arena waste", "planned in"};
  if (moved) titles.insert(titles.begin() + 8, {"packed", "offloaded"});
  Table table(titles);
  for (const PlanReport& report : reports) {
    std::vector<std::string> cells = {
        strategy_label(report), format_bytes(report.budget_bytes), report.feasible ? "yes" : "no",
        format_bytes(report.peak_bytes), share(report.peak_bytes, report.keep_all_peak_bytes),
        format_ns(report.time_ns), overhead(report), std::to_string(report.recomputed_ops),
        share(report.arena_bytes - report.max_live_bytes, report.max_live_bytes),
        fmt::format("{:.2f} s", report.plan_seconds)};
    if (moved) {
      cells.insert(cells.begin() + 8,
                   {std::to_string(report.packed_values), std::to_string(report.offloaded_values)});
    }
    table.add_row(std::move(cells));
  }
  if (reports.empty()) return table.text();
  const PlanReport& any = reports.front();
  const PlanReport& lowest = *std::min_element(
      reports.begin(), reports.end(),
      [](const PlanReport& a, const PlanReport& b) { return a.floor_bytes < b.floor_bytes; });
  return fmt::format("{}: {} ops, {} storages; keep-all peak {}, {}; floor {} (set by {})\n\n{}",
                     any.graph, any.op_count, any.storage_count,
                     format_bytes(any.keep_all_peak_bytes), format_ns(any.keep_all_time_ns),
                     format_bytes(lowest.floor_bytes), lowest.floor_op, table.text());
}

nlohmann::json plan_json(const PlanReport& report) {
  return {{"graph", report.graph},
          {"strategy", report.strategy},
          {"chosen_strategy", report.chosen_strategy},
          {"budget_bytes", report.budget_bytes},
          {"feasible", report.feasible},
          {"op_count", report.op_count},
          {"storage_count", report.storage_count},
          {"external_bytes", report.external_bytes},
          {"keep_all_peak_bytes", report.keep_all_peak_bytes},
          {"peak_bytes", report.peak_bytes},
          {"peak_op", report.peak_op},
          {"floor_bytes", report.floor_bytes},
          {"floor_op", report.floor_op},
          {"keep_all_time_ns", report.keep_all_time_ns},
          {"time_ns", report.time_ns},
          {"lower_bound_time_ns", report.lower_bound_time_ns
                                      ? nlohmann::json(*report.lower_bound_time_ns)
                                      : nlohmann::json(nullptr)},
          {"bound_without_moves_ns", report.bound_without_moves_ns
                                         ? nlohmann::json(*report.bound_without_moves_ns)
                                         : nlohmann::json(nullptr)},
          {"recomputed_ops", report.recomputed_ops},
          {"packed_values", report.packed_values},
          {"offloaded_values", report.offloaded_values},
          {"offloaded_bytes", report.offloaded_bytes},
          {"waited_ns", report.waited_ns},
          {"channel_bytes", report.channel_bytes},
          {"plan_seconds", report.plan_seconds},
          {"arena_bytes", report.arena_bytes},
          {"max_live_bytes", report.max_live_bytes},
          {"note", report.note},
          {"peak_by_role", moment_json(report.at_peak)},
          {"keep_all_peak_by_role", moment_json(report.keep_all_at_peak)}};
}

std::string infeasible_message(const PlanReport& report) {
  if (report.budget_bytes < report.floor_bytes) {
    const Sizes sizes = told_apart(report.budget_bytes, report.floor_bytes);
    return fmt::format("budget {} is below the floor of {} (set by {}); raise --budget", sizes.less,
                       sizes.more, report.floor_op);
  }
  // With `placed`, live bytes may fit where addresses do not.
  const int64_t reached = report.peak_bytes > report.budget_bytes
                              ? report.peak_bytes
                              : report.external_bytes + report.arena_bytes;
  const Sizes sizes = told_apart(report.budget_bytes, reached);
  return fmt::format(
      "{} reaches {}, above the budget of {}; the floor is {} (set by {}): raise --budget or use "
      "--strategy auto",
      report.strategy, sizes.more, sizes.less, enough_bytes(report.floor_bytes), report.floor_op);
}

std::string explain_text(const std::vector<Explanation>& explanations) {
  std::string out;
  for (const Explanation& explanation : explanations) {
    out += fmt::format("{:<10} {}\n", name(explanation.action), explanation.sentence);
  }
  return out;
}

nlohmann::json explain_json(const Graph& graph, const std::vector<Explanation>& explanations) {
  nlohmann::json list = nlohmann::json::array();
  for (const Explanation& explanation : explanations) {
    const Storage& storage = graph.storage(explanation.storage);
    list.push_back({{"storage", storage.name},
                    {"layer", layer_of(graph.op(*storage.creator).scope, 0)},
                    {"bytes", storage.bytes},
                    {"action", name(explanation.action)},
                    {"recomputes", explanation.recomputes},
                    {"reason", explanation.sentence}});
  }
  return list;
}

}  // namespace remat
