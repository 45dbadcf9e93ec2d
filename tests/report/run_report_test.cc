// SPDX-License-Identifier: Apache-2.0
#include "remat/report/run_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace remat {
namespace run_report_test {

RunReport good() {
  RunReport report{.model = "net", .budget_bytes = 100, .eager_peak_bytes = 200, .rounds = 3};
  report.methods = {{.method = "auto",
                     .chosen_strategy = "search",
                     .predicted_peak_bytes = 90,
                     .reserved_bytes = 95,
                     .measured_peak_bytes = 90,
                     .time_ratio_to_eager = 1.02},
                    {.method = "checkpoint", .measured_peak_bytes = 150},
                    {.method = "keep_all", .feasible = false, .fault = "reaches too much"}};
  return report;
}

std::string broken(const RunReport& report) {
  return broken_promise(report, report.methods.front());
}

TEST(RunReport, NothingIsBrokenWhereAllIsWell) {
  const RunReport report = good();
  for (const MethodReport& method : report.methods) EXPECT_EQ(broken_promise(report, method), "");
}

TEST(RunReport, BrokenPromisesAreNamed) {
  RunReport report = good();
  report.methods.front().bit_identical = {.loss = true, .gradients = false, .rng = false};
  EXPECT_EQ(broken(report), "auto: gradients, rng not bit-identical to plain LibTorch's");
  report = good();
  report.methods.front().measured_peak_bytes = 91;
  EXPECT_EQ(broken(report), "auto: measured a peak of 91 B, predicted 90 B");
  report = good();
  report.methods.front().reserved_bytes = 101;
  EXPECT_EQ(broken(report), "auto: reserved 101 B, the budget is 100 B");
}

TEST(RunReport, WithTheUpdateInsideThereAreParametersInsteadOfGradients) {
  RunReport report = good();
  report.methods.front().bit_identical = {.gradients = {}, .parameters = true, .optimizer_state = false};
  EXPECT_EQ(broken(report), "auto: optimizer_state not bit-identical to plain LibTorch's");
  EXPECT_EQ(run_json(report)["bit_identical"], nlohmann::json({{"loss", true},
                                                               {"parameters", true},
                                                               {"optimizer_state", false},
                                                               {"buffers", true},
                                                               {"rng", true}}));
}

TEST(RunReport, TextHasARowForEveryMethod) {
  const std::string text = run_text(good());
  for (const char* words : {"plain LibTorch", "auto (search)", "1.020", "45.0 %", "checkpoint",
                            "75.0 %", "does not fit", "reaches too much"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(RunReport, JsonHasTheFirstMethodOnTopAndTheOthersCompared) {
  const nlohmann::json json = run_json(good());
  EXPECT_EQ(json["strategy"], "auto");
  EXPECT_EQ(json["predicted_peak_bytes"], 90);
  EXPECT_TRUE(json["resident_bytes"].is_null());
  EXPECT_EQ(json["bit_identical"]["rng"], true);
  ASSERT_EQ(json["compared"].size(), 2u);
  EXPECT_TRUE(json["compared"][0]["predicted_peak_bytes"].is_null());
  EXPECT_EQ(json["compared"][1]["fault"], "reaches too much");
}

}  // namespace run_report_test
}  // namespace remat
