// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "remat/core/graph.h"
#include "remat/report/plan_report.h"
#include "remat/report/run_report.h"
#include "remat/report/sweep_report.h"

// Reports of things that nobody ran: numbers that a page must show.
namespace remat {

// A run by the plan of `report` beside plain LibTorch, with three more methods: one as it should
// be, one that does not fit and one whose gradients have other bits.
RunReport made_up_run(const std::string& model, const PlanReport& report);

// Four batch sizes, of which the limit takes one plainly and three with a plan.
SweepReport made_up_sweep(const std::string& model);

}  // namespace remat
