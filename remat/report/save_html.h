// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "remat/report/plan_report.h"
#include "remat/report/profile_report.h"

namespace remat {

// The pages that the tool writes, for programs:
//
//   remat::save_html(remat::profile(graph, /*depth=*/2), "profile.html");  // where time and memory go
//   remat::save_html(step, "plan.html");                                   // a Step or a TrainingStep
//
// A file that is there is replaced. All throw Error where the file cannot be written.

void save_html(const ProfileReport& report, const std::string& path);
void save_html(const PlanReport& report, const std::string& path);

// The pages as text. Of a plan: throws Error if the report has no `step`.
std::string profile_html(const ProfileReport& report);
std::string plan_html(const PlanReport& report);

// The plan that a Step or a TrainingStep ran last, and the bytes that were counted then. Throws Error before
// its first planned call.
template <typename AnyStep>
PlanReport report_step(const AnyStep& step, const std::string& title = "a training step") {
  const auto found = step.report();
  PlanReport report =
      report_plan(step.graph(), step.plan(), step.schedule(),
                  floor(step.graph(), step.plan()), found.budget_bytes);
  report.graph = title;
  report.plan_seconds = found.plan_seconds;
  report.step = std::make_shared<const PlanDetails>(PlanDetails{
      step.graph(), step.plan(), step.schedule(), report.placement, found.measured_bytes});
  return report;
}

template <typename AnyStep>
  requires requires(const AnyStep& step) { step.schedule(); }
void save_html(const AnyStep& step, const std::string& path) {
  save_html(report_step(step), path);
}

}  // namespace remat
