// SPDX-License-Identifier: Apache-2.0
// Step: what is said of the course that ran last, and written for later processes.
#include <algorithm>

#include "remat/core/error.h"
#include "remat/core/simulate.h"
#include "remat/libtorch/saved_plan.h"
#include "remat/libtorch/step_implementation.h"

namespace remat {

using detail::Variant;

const Variant& Step::Implementation::last() const {
  if (last_ == nullptr) {
    throw Error(calls_ == 0 ? "[step] nothing to report; run the step first"
                            : "[step] nothing to report: no call has been planned yet; a step that "
                              "prepares something, or differs every time, runs plainly");
  }
  return *last_;
}

const Variant& Step::Implementation::planned() const {
  if (!last().has_plan()) {
    throw Error("[step] there is no plan: what the last one packed or offloaded has failed, and no other fits the "
                "budget; raise it and run the step");
  }
  return last();
}

StepReport Step::Implementation::report() const {
  const Variant& variant = last();
  StepReport report = variant.report;
  const Baseline baseline = keep_all_baseline(variant.graph);
  report.keep_all_peak_bytes = baseline.peak_bytes;
  report.keep_all_time_ns = baseline.time_ns;
  report.eager_peak_bytes = variant.trace.eager_peak_bytes;
  report.floor_bytes = last_->floor_bytes();
  report.counts = variant.counts;
  report.measured_peak_bytes = variant.counts.peak_bytes;
  report.external_bytes = variant.graph.external_bytes();
  for (const Storage& storage : variant.graph.storages) {
    if (storage.external()) {
      report.external_bytes_by_role[static_cast<size_t>(storage.role)] += storage.bytes;
    }
  }
  report.channel = channel_text_;
  report.variants = static_cast<int>(variants_.size());
  report.planned_steps = planned_steps_;
  report.plain_steps = plain_steps_;
  if (!variant.has_plan()) return report;
  const Simulation simulation = simulate(variant.graph, variant.schedule());
  report.floor_bytes = std::min(report.floor_bytes, variant.plan().peak_bytes);
  report.predicted_peak_bytes = simulation.peak_bytes;
  report.arena_bytes = variant.placement().arena_bytes;
  report.peak_bytes = report.external_bytes + report.arena_bytes;
  report.time_ns = simulation.time_ns;
  report.channel_bytes = variant.placement().channel_bytes;
  report.strategy = variant.plan().strategy;
  report.timeline = simulation.timeline;
  if (variant.runner != nullptr) report.measured_bytes = variant.runner->measured_bytes();
  return report;
}

PlanFile Step::Implementation::plan_file() const { return detail::plan_file_of(variants_); }

void Step::Implementation::save_plan(const std::string& path) const {
  remat::save_plan(plan_file(), path);
}

}  // namespace remat
