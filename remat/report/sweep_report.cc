// SPDX-License-Identifier: Apache-2.0
#include "remat/report/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "remat/core/units.h"
#include "remat/report/bar_chart.h"
#include "remat/report/table.h"

namespace remat {
namespace {

constexpr int kPlannedColour = 208;

template <typename T>
nlohmann::json value_or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

std::optional<double> samples_per_second(int64_t batch, const SweptStep& step) {
  if (!step.step_ns || *step.step_ns == 0) return {};
  return 1e9 * static_cast<double>(batch) / static_cast<double>(*step.step_ns);
}

std::string bytes_cell(const SweptStep& step, bool estimated) {
  if (!step.peak_bytes) return estimated ? "not tried" : "does not fit";
  return fmt::format("{}{}{}", estimated ? "about " : "", format_bytes(*step.peak_bytes),
                     step.fits ? "" : " (does not fit)");
}

std::string rate_cell(int64_t batch, const SweptStep& step) {
  const auto rate = samples_per_second(batch, step);
  return rate ? fmt::format("{:.1f}/s", *rate) : "-";
}

std::string time_cell(const SweptStep& step) { return step.step_ns ? format_ns(*step.step_ns) : "-"; }

std::string batches_text(const SweepReport& report, const TextStyle& style) {
  std::vector<Bar> bars;
  for (const BatchPoint& point : report.batches) {
    bars.push_back({.cells = {std::to_string(point.batch), bytes_cell(point.plain, point.plain_estimated),
                              time_cell(point.plain), rate_cell(point.batch, point.plain),
                              bytes_cell(point.planned, point.plain_estimated), time_cell(point.planned),
                              rate_cell(point.batch, point.planned)},
                    .value = point.planned.peak_bytes.value_or(0),
                    .before = point.plain.peak_bytes.value_or(0),
                    .colour = kPlannedColour});
  }
  return bar_chart({"batch", "plain", "step", "samples", "planned", "step", "samples"}, bars, style);
}

// A row for each strategy, a column for each budget: how much longer the step takes.
std::string frontier_text(const SweepReport& report) {
  std::vector<std::string> header = {"strategy"};
  std::vector<int64_t> budgets;
  for (const FrontierPoint& point : report.frontier) {
    if (std::ranges::find(budgets, point.budget_bytes) != budgets.end()) continue;
    budgets.push_back(point.budget_bytes);
    header.push_back(format_bytes(point.budget_bytes));
  }
  Table table(header);
  std::vector<std::string> row;
  for (const FrontierPoint& point : report.frontier) {
    if (row.empty() || row.front() != point.strategy) {
      if (!row.empty()) table.add_row(row);
      row.assign(budgets.size() + 1, "");
      row.front() = point.strategy;
    }
    const auto column = std::ranges::find(budgets, point.budget_bytes) - budgets.begin();
    row[static_cast<size_t>(column) + 1] =
        point.step.fits ? fmt::format("{:+.1f} %", 100 * (point.time_ratio - 1)) : "-";
  }
  if (!row.empty()) table.add_row(row);
  return table.text();
}

std::string batch_or_none(const LargestBatch& largest) {
  if (largest.batch == 0) return "none";
  return (largest.estimated ? "about " : "") + std::to_string(largest.batch);
}

std::string largest_text(const SweepReport& report) {
  std::string out = fmt::format("\nlargest batch that fits{}: {} plainly, {} with a plan\n",
                                report.searched() ? "" : ", of these",
                                batch_or_none(report.largest_plain()),
                                batch_or_none(report.largest_planned()));
  if (report.largest_plain().estimated || report.largest_planned().estimated) {
    out += "about: planned from the graphs of other sizes; remat fit proves it by running\n";
  }
  if (!report.next_reason.empty()) out += report.next_reason + "\n";
  return out;
}

template <typename Fits>
int64_t largest_tried(const SweepReport& report, const Fits& fits) {
  int64_t largest = 0;
  for (const BatchPoint& point : report.batches) {
    if (fits(point)) largest = std::max(largest, point.batch);
  }
  return largest;
}

}  // namespace

LargestBatch SweepReport::largest_plain() const {
  return found_plain.value_or(
      LargestBatch{largest_tried(*this, [](const BatchPoint& point) { return point.plain.fits; })});
}

LargestBatch SweepReport::largest_planned() const {
  return found_planned.value_or(LargestBatch{largest_tried(
      *this, [](const BatchPoint& point) { return point.plain.fits || point.planned.fits; })});
}

std::string sweep_text(const SweepReport& report, const TextStyle& style) {
  std::string out = report.model + "\n";
  // A share of a peak is not known before that.
  if (report.limit_bytes > 0) {
    out += fmt::format("limit {} ({}); ", format_bytes(report.limit_bytes),
                       report.limit_given ? "given" : "what the machine has left");
  }
  out += fmt::format("{}\n\n", report.measured ? fmt::format("measured: {} real steps of each point", report.steps)
                                     : "planned: op times of a measured step, bytes of the memory model");
  out += batches_text(report, style);
  if (!report.batches.empty()) {
    out += "planned inside half of the plain peak, or the limit where that is less; more, up to the limit, where no plan is found\n";
  }
  for (const BatchPoint& point : report.batches) {
    if (!point.fault.empty()) out += fmt::format("batch {}: {}\n", point.batch, point.fault);
  }
  out += largest_text(report);
  if (!report.frontier.empty()) {
    out += fmt::format("\nbatch {}, time over the plain step's ({}, {}) inside a budget of\n{}",
                       report.frontier_batch, format_bytes(report.frontier_plain_peak_bytes),
                       format_ns(report.frontier_plain_step_ns), frontier_text(report));
  }
  if (report.interrupted) out += "\ninterrupted: this is what there was by then\n";
  return out;
}

nlohmann::json sweep_json(const SweepReport& report) {
  nlohmann::json batches = nlohmann::json::array();
  for (const BatchPoint& point : report.batches) {
    batches.push_back(
        {{"batch", point.batch},
         {"plain_fits", point.plain.fits},
         {"plain_peak_bytes", value_or_null(point.plain.peak_bytes)},
         {"plain_estimated", point.plain_estimated},
         {"plain_step_ns", value_or_null(point.plain.step_ns)},
         {"plain_samples_per_second", value_or_null(samples_per_second(point.batch, point.plain))},
         {"floor_bytes", value_or_null(point.floor_bytes)},
         {"planned_budget_bytes",
          point.budget_bytes > 0 ? nlohmann::json(point.budget_bytes) : nlohmann::json(nullptr)},
         {"planned_fits", point.planned.fits},
         {"planned_peak_bytes", value_or_null(point.planned.peak_bytes)},
         {"planned_step_ns", value_or_null(point.planned.step_ns)},
         {"planned_samples_per_second", value_or_null(samples_per_second(point.batch, point.planned))},
         {"recomputed_ops", point.recomputed_ops},
         {"strategy", point.strategy},
         {"fault", point.fault}});
  }
  nlohmann::json frontier = nlohmann::json::array();
  for (const FrontierPoint& point : report.frontier) {
    frontier.push_back({{"strategy", point.strategy},
                        {"budget_bytes", point.budget_bytes},
                        {"fits", point.step.fits},
                        {"peak_bytes", value_or_null(point.step.peak_bytes)},
                        {"step_ns", value_or_null(point.step.step_ns)},
                        {"time_ratio", point.step.step_ns ? nlohmann::json(point.time_ratio)
                                                          : nlohmann::json(nullptr)},
                        {"recomputed_ops", point.recomputed_ops}});
  }
  return {{"label", report.model},
          {"measured", report.measured},
          {"steps", report.steps},
          {"interrupted", report.interrupted},
          {"limit_bytes", report.limit_bytes},
          {"limit_given", report.limit_given},
          {"largest_searched", report.searched()},
          {"largest_plain_batch", report.largest_plain().batch},
          {"largest_plain_estimated", report.largest_plain().estimated},
          {"largest_planned_batch", report.largest_planned().batch},
          {"largest_planned_estimated", report.largest_planned().estimated},
          {"next_reason", report.next_reason},
          {"batches", std::move(batches)},
          {"frontier_batch", report.frontier_batch},
          {"frontier_plain_peak_bytes", report.frontier_plain_peak_bytes},
          {"frontier_plain_step_ns", report.frontier_plain_step_ns},
          {"frontier", std::move(frontier)}};
}

}  // namespace remat
