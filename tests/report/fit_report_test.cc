// SPDX-License-Identifier: Apache-2.0
#include "remat/report/fit_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace remat {
namespace fit_report_test {

FitReport good() {
  FitReport report{.model = "net, f32", .along = "batch", .budget_bytes = 1000};
  report.fit.plain = {.size = 8,
                      .predicted_peak_bytes = 990,
                      .measured_peak_bytes = 980,
                      .reserved_bytes = 980,
                      .step_ns = 800};
  report.fit.planned = {.size = 20,
                        .predicted_peak_bytes = 970,
                        .measured_peak_bytes = 970,
                        .reserved_bytes = 999,
                        .step_ns = 2400};
  report.fit.next_size = 21;
  report.fit.next_floor_bytes = 1010;
  report.fit.next_reason = "the least known peak, 1010 B, is above the budget";
  return report;
}

TEST(FitReport, TextHasBothSizesAndTheReasonForNoMore) {
  const std::string text = fit_text(good());
  for (const char* words : {"net, f32; budget 1000 B", "largest batch", "per sample", "plain LibTorch",
                            "980 B", "999 B", "100 ns", "120 ns",
                            "2.50 times the batch of plain LibTorch, at 1.20 times its time per sample",
                            "batch 21 does not fit: the least known peak, 1010 B, is above the budget"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(FitReport, TextWithoutAPlainSizeAndWithoutANextOne) {
  FitReport report = good();
  report.fit.plain = {};
  report.fit.next_size = 0;
  const std::string text = fit_text(report);
  EXPECT_NE(text.find("none"), std::string::npos) << text;
  EXPECT_EQ(text.find("times the batch"), std::string::npos) << text;
  EXPECT_NE(text.find("batch 20 is the largest"), std::string::npos) << text;
}

TEST(FitReport, Json) {
  const nlohmann::json json = fit_json(good());
  EXPECT_EQ(json["planned"]["size"], 20);
  EXPECT_EQ(json["planned"]["ns_per_sample"], 120);
  EXPECT_EQ(json["plain"]["ns_per_sample"], 100);
  EXPECT_EQ(json["next"]["size"], 21);
  EXPECT_EQ(json["feasible"], true);
  EXPECT_FALSE(json.contains("floor_bytes"));
}

TEST(FitReport, TimesAreDividedByWhatIsInAStep) {
  FitReport report = good();
  report.per = "token";
  report.count = 4;  // sequences in the batch
  EXPECT_EQ(report.ns_per_item(report.fit.planned), 2400 / (4 * 20));
  report.fixed = true;  // images: the batch stays
  EXPECT_EQ(report.ns_per_item(report.fit.planned), 600);
}

TEST(FitReport, NothingFits) {
  FitReport report = good();
  report.fit = {.floor_bytes = 2048};
  EXPECT_EQ(nothing_fits_message(report),
            "not even the smallest batch fits the budget of 1000 B: the least known peak is 2 KiB; "
            "raise --budget");
  EXPECT_EQ(fit_json(report)["floor_bytes"], 2048);
  EXPECT_EQ(fit_json(report)["feasible"], false);
}

}  // namespace fit_report_test
}  // namespace remat
