// SPDX-License-Identifier: Apache-2.0
#include "remat/report/fit_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "remat/core/units.h"
#include "remat/report/table.h"

namespace remat {
namespace {

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

void add_fitted_row(Table& table, const char* label, const FitReport& report,
                    const FittedSize& fitted) {
  if (fitted.size == 0) {
    table.add_row({label, "none"});
    return;
  }
  table.add_row({label, std::to_string(fitted.size), format_bytes(fitted.predicted_peak_bytes),
                 format_bytes(fitted.measured_peak_bytes), format_bytes(fitted.reserved_bytes),
                 format_ns(fitted.step_ns), format_ns(report.ns_per_item(fitted))});
}

nlohmann::json fitted_json(const FitReport& report, const FittedSize& fitted) {
  return {{"size", fitted.size},
          {"predicted_peak_bytes", fitted.predicted_peak_bytes},
          {"measured_peak_bytes", fitted.measured_peak_bytes},
          {"reserved_bytes", fitted.reserved_bytes},
          {"step_ns", fitted.step_ns},
          {"ns_per_" + report.per, report.ns_per_item(fitted)}};
}

}  // namespace

int64_t FitReport::ns_per_item(const FittedSize& fitted) const {
  return fitted.size == 0 ? 0 : fitted.step_ns / (fixed ? count : count * fitted.size);
}

std::string fit_text(const FitReport& report) {
  const Fit& fit = report.fit;
  std::string out =
      fmt::format("{}; budget {}\n\n", report.model, format_bytes(report.budget_bytes));
  Table table({"", "largest " + report.along, "predicted peak", "measured peak", "reserved", "step",
               "per " + report.per});
  add_fitted_row(table, "plain LibTorch", report, fit.plain);
  add_fitted_row(table, "remat", report, fit.planned);
  out += table.text() + "\n";
  if (fit.plain.size != 0) {
    out += fmt::format("{:.2f} times the {} of plain LibTorch, at {:.2f} times its time per {}\n",
                       ratio(fit.planned.size, fit.plain.size), report.along,
                       ratio(report.ns_per_item(fit.planned), report.ns_per_item(fit.plain)),
                       report.per);
  }
  if (fit.next_size != 0) {
    out += fmt::format("{} {} does not fit: {}\n", report.along, fit.next_size, fit.next_reason);
  } else {
    out += fmt::format("{} {} is the largest that the model can take, or that was asked for\n",
                       report.along, fit.planned.size);
  }
  out += fmt::format("{} plain and {} planned sizes run, {} plans made, in {:.0f} s\n",
                     fit.plain_runs, fit.planned_runs, fit.plans, report.seconds);
  return out;
}

nlohmann::json fit_json(const FitReport& report) {
  const Fit& fit = report.fit;
  nlohmann::json json = {{"along", report.along},
                         {"budget_bytes", report.budget_bytes},
                         {"feasible", fit.planned.size != 0},
                         {"planned", fitted_json(report, fit.planned)},
                         {"plain", fitted_json(report, fit.plain)},
                         {"plans", fit.plans},
                         {"plain_runs", fit.plain_runs},
                         {"planned_runs", fit.planned_runs},
                         {"seconds", report.seconds}};
  if (fit.planned.size == 0) {
    json["floor_bytes"] = fit.floor_bytes;
  } else if (fit.next_size != 0) {
    json["next"] = {{"size", fit.next_size},
                    {"floor_bytes", fit.next_floor_bytes},
                    {"reason", fit.next_reason}};
  }
  return json;
}

std::string nothing_fits_message(const FitReport& report) {
  return fmt::format("not even the smallest {} fits the budget of {}: the least known peak is {}; "
                     "raise --budget",
                     report.along, format_bytes(report.budget_bytes),
                     format_bytes(report.fit.floor_bytes));
}

}  // namespace remat
