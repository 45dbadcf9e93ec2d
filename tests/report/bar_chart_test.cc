// SPDX-License-Identifier: Apache-2.0
#include "remat/report/bar_chart.h"

#include <gtest/gtest.h>

namespace remat {
namespace bar_chart_test {

TEST(BarChart, TheLargestFillsTheWidth) {
  // The labels take 6 columns and a gap: 20 - 6 - 3 leave 11 for bars.
  const std::vector<Bar> bars = {{.cells = {"a", "10"}, .value = 5, .before = 11},
                                 {.cells = {"bb", "2"}, .value = 11},
                                 {.cells = {"c", "0"}, .value = 0}};
  EXPECT_EQ(bar_chart({"x", "nn"}, bars, {.columns = 20}),
            "x   nn\n"
            "a   10  #####......\n"
            "bb   2  ###########\n"
            "c    0  \n");
}

TEST(BarChart, BlocksShowEighthsAndASliverIsNeverLost) {
  const std::vector<Bar> bars = {{.cells = {"a"}, .value = 80'000}, {.cells = {"b"}, .value = 1}};
  EXPECT_EQ(bar_chart({"x"}, bars, {.blocks = true, .columns = 14}), "x\na  ██████████\nb  ▏\n");
}

TEST(BarChart, ColoursOnlyWhereAsked) {
  const std::vector<Bar> bars = {{.cells = {"a"}, .value = 1, .colour = 67}};
  EXPECT_EQ(bar_chart({"x"}, bars, {.columns = 14}), "x\na  ##########\n");
  EXPECT_EQ(bar_chart({"x"}, bars, {.colours = true, .columns = 14}), "x\na  \033[38;5;67m##########\033[0m\n");
}

TEST(PeakChart, RolesByBytesOfEither) {
  Moment now, before;
  now.bytes = 60;
  now.by_role[static_cast<size_t>(Role::param)] = 40;
  now.workspace_bytes = 20;
  before.by_role[static_cast<size_t>(Role::activation)] = 80;
  const std::string text = peak_chart(now, &before, {});
  const size_t activation = text.find("activation"), param = text.find("param"), workspace = text.find("workspace");
  EXPECT_LT(activation, param);
  EXPECT_LT(param, workspace);
  EXPECT_EQ(text.find("gradient"), std::string::npos);
  EXPECT_NE(text.find("66.7 %"), std::string::npos) << text;
  EXPECT_EQ(peak_chart(Moment{}, nullptr, {}), "at the peak  bytes  share\n");
}

}  // namespace bar_chart_test
}  // namespace remat
