// SPDX-License-Identifier: Apache-2.0
#include "made_up.h"

#include "remat/core/plan.h"
#include "remat/core/units.h"

namespace remat {

RunReport made_up_run(const std::string& model, const PlanReport& report) {
  RunReport run{.model = model,
                .parameters = 1'234'567,
                .budget_bytes = report.budget_bytes,
                .keep_all_peak_bytes = report.keep_all_peak_bytes,
                .floor_bytes = report.floor_bytes,
                .floor_op = report.floor_op,
                .eager_peak_bytes = report.keep_all_peak_bytes + 4096,
                .eager_resident_bytes = report.keep_all_peak_bytes + 5 * MiB,
                .eager_step_ns = 700'000'000,
                .rounds = 5,
                .first_loss = 2.5,
                .last_loss = 1.25};
  run.methods.push_back({.method = "auto",
                         .chosen_strategy = report.strategy,
                         .predicted_peak_bytes = report.peak_bytes,
                         .reserved_bytes = report.peak_bytes + 64,
                         .measured_peak_bytes = report.peak_bytes,
                         .recomputed_ops = report.recomputed_ops,
                         .step_ns = 735'000'000,
                         .time_ratio_to_eager = 1.05});
  run.methods.push_back({.method = "mutwo",
                         .chosen_strategy = "mutwo",
                         .predicted_peak_bytes = report.peak_bytes,
                         .measured_peak_bytes = report.peak_bytes,
                         .step_ns = 770'000'000,
                         .time_ratio_to_eager = 1.1});
  run.methods.push_back(
      {.method = "every_k", .feasible = false, .fault = "every_k: no plan fits </td><b>"});
  run.methods.push_back({.method = "checkpoint",
                         .measured_peak_bytes = report.keep_all_peak_bytes / 2,
                         .step_ns = 910'000'000,
                         .time_ratio_to_eager = 1.3,
                         .bit_identical = {.gradients = false}});
  return run;
}

SweepReport made_up_sweep(const std::string& model) {
  SweepReport report{.model = model, .limit_bytes = 1000 * MiB, .limit_given = true};
  for (const int64_t batch : {2, 4, 8, 16}) {
    BatchPoint point{.batch = batch};
    point.plain = {.fits = batch == 2, .peak_bytes = (400 + 200 * batch) * MiB};
    if (point.plain.fits) point.plain.step_ns = batch * 1'000'000;
    point.floor_bytes = (200 + 60 * batch) * MiB;
    point.budget_bytes = 1000 * MiB;
    if (batch < 16) {
      point.planned = {
          .fits = true, .peak_bytes = (200 + 90 * batch) * MiB, .step_ns = batch * 1'200'000};
    } else {
      point.fault = "no plan fits <i>";
    }
    report.batches.push_back(point);
  }
  report.batches.push_back({.batch = 32,
                            .plain = {.peak_bytes = 6800 * MiB},
                            .plain_estimated = true,
                            .fault = "it was not tried"});
  report.found_plain = LargestBatch{3, true};
  report.found_planned = LargestBatch{8, false};
  report.next_reason = "batch 9 does not fit: the least known peak is above </p> the budget";
  report.frontier_batch = 8;
  report.frontier_plain_peak_bytes = 2000 * MiB;
  report.frontier_plain_step_ns = 8'000'000;
  for (const Strategy& strategy : strategies()) {
    for (const int64_t share : {100, 75, 50}) {
      const std::string name(strategy.name);
      const double slope =
          name == "auto" ? 0.002 : 0.002 + 0.0004 * static_cast<double>(name.size());
      const double ratio =
          name == "recompute_all" ? 9 : 1 + slope * (100.0 - static_cast<double>(share));
      FrontierPoint point{.strategy = name, .budget_bytes = 20 * share * MiB, .time_ratio = ratio};
      point.step = {.fits = name != "keep_all" || share == 100,
                    .peak_bytes = 20 * share * MiB,
                    .step_ns = static_cast<int64_t>(8e6 * ratio)};
      report.frontier.push_back(point);
    }
  }
  return report;
}

}  // namespace remat
