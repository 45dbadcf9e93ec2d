// SPDX-License-Identifier: Apache-2.0
#include "remat/report/sweep_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remat/core/units.h"

namespace remat {
namespace sweep_report_test {

SweepReport swept() {
  SweepReport report{.model = "net", .limit_bytes = 100 * MiB, .limit_given = true, .frontier_batch = 4};
  report.batches.push_back({.batch = 2,
                            .plain = {.fits = true, .peak_bytes = 80 * MiB, .step_ns = 1'000'000'000},
                            .floor_bytes = 30 * MiB,
                            .budget_bytes = 45 * MiB,
                            .planned = {.fits = true, .peak_bytes = 40 * MiB, .step_ns = 1'250'000'000}});
  report.batches.push_back({.batch = 4,
                            .plain = {.peak_bytes = 160 * MiB},
                            .floor_bytes = 60 * MiB,
                            .planned = {.fits = true, .peak_bytes = 80 * MiB, .step_ns = 2'000'000'000}});
  report.batches.push_back({.batch = 64, .plain = {.peak_bytes = GiB}, .plain_estimated = true, .fault = "too large"});
  report.frontier.push_back({.strategy = "auto", .budget_bytes = 80 * MiB, .step = {.fits = true, .step_ns = 8},
                             .time_ratio = 1.25});
  report.frontier.push_back({.strategy = "auto", .budget_bytes = 10 * MiB});
  return report;
}

TEST(SweepReport, LargestBatchesAreThoseFoundElseThoseTried) {
  EXPECT_EQ(swept().largest_plain(), (LargestBatch{2, false}));
  EXPECT_EQ(swept().largest_planned(), (LargestBatch{4, false}));
  EXPECT_EQ(SweepReport{}.largest_planned(), LargestBatch{});
  EXPECT_FALSE(swept().searched());
  SweepReport searched = swept();
  searched.found_plain = LargestBatch{3, true};
  searched.found_planned = LargestBatch{7, true};
  searched.next_reason = "batch 8 does not fit";
  EXPECT_EQ(searched.largest_plain().batch, 3);
  const std::string text = sweep_text(searched);
  for (const char* words : {"largest batch that fits: about 3 plainly, about 7 with a plan", "remat fit proves it",
                            "batch 8 does not fit"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  const nlohmann::json json = sweep_json(searched);
  EXPECT_EQ(json["largest_planned_batch"], 7);
  EXPECT_EQ(json["largest_planned_estimated"], true);
  EXPECT_EQ(json["largest_searched"], true);
}

TEST(SweepReport, Text) {
  const std::string text = sweep_text(swept());
  for (const char* words : {"limit 100 MiB (given)", "planned: op times", "160 MiB (does not fit)", "2.0/s", "1.6/s",
                            "about 1 GiB", "not tried", "batch 64: too large", "planned inside half of the plain peak", "of these: 2 plainly, 4 with a plan", "+25.0 %"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  SweepReport measured = swept();
  measured.measured = true;
  measured.steps = 3;
  EXPECT_NE(sweep_text(measured).find("measured: 3 real steps"), std::string::npos);
  const std::string interrupted = sweep_text({.model = "net", .interrupted = true});
  EXPECT_NE(interrupted.find("interrupted"), std::string::npos);
  EXPECT_EQ(interrupted.find("limit"), std::string::npos) << "none is known yet: " << interrupted;
  EXPECT_EQ(interrupted.find("planned inside"), std::string::npos);
}

TEST(SweepReport, JsonHasNullForWhatIsNotKnown) {
  const nlohmann::json json = sweep_json(swept());
  EXPECT_EQ(json["batches"][0]["plain_samples_per_second"], 2.0);
  EXPECT_TRUE(json["batches"][1]["plain_step_ns"].is_null());
  EXPECT_TRUE(json["batches"][2]["planned_peak_bytes"].is_null());
  EXPECT_TRUE(json["batches"][2]["planned_budget_bytes"].is_null());
  EXPECT_EQ(json["batches"][0]["planned_budget_bytes"], 45 * MiB);
  EXPECT_TRUE(json["frontier"][1]["time_ratio"].is_null());
  EXPECT_EQ(json["largest_planned_batch"], 4);
  EXPECT_EQ(json["largest_searched"], false);
}

}  // namespace sweep_report_test
}  // namespace remat
