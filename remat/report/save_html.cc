// SPDX-License-Identifier: Apache-2.0
#include "remat/report/save_html.h"

#include <nlohmann/json.hpp>

#include "remat/core/error.h"
#include "remat/report/page.h"

namespace remat {

std::string profile_html(const ProfileReport& report) {
  nlohmann::json json = profile_json(report);
  json.update(profile_details_json(report));
  return page_html("profile", "Profile of " + (report.model.empty() ? "a step" : report.model), json);
}

std::string plan_html(const PlanReport& report) {
  if (report.step == nullptr) {
    throw Error("[save_html] the report has sums only; expected the planned step in its `step`");
  }
  nlohmann::json json = plan_json(report);
  json.update(plan_details_json(*report.step));
  return page_html("plan", "Plan of " + report.graph, json);
}

void save_html(const ProfileReport& report, const std::string& path) {
  save_page(profile_html(report), path);
}

void save_html(const PlanReport& report, const std::string& path) { save_page(plan_html(report), path); }

}  // namespace remat
