// SPDX-License-Identifier: Apache-2.0
#include "remat/report/html.h"

#include <gtest/gtest.h>

namespace remat {
namespace {

std::vector<Moment> moments(const std::vector<int64_t>& activations) {
  std::vector<Moment> made;
  for (const int64_t bytes : activations) {
    Moment moment{.bytes = bytes + 10};
    moment.by_role[static_cast<size_t>(Role::param)] = 10;
    moment.by_role[static_cast<size_t>(Role::activation)] = bytes;
    made.push_back(moment);
  }
  return made;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Html, EscapesWhatCouldEndATag) {
  EXPECT_EQ(html_escaped("</script> & \"x\" 'y'"), "&lt;/script&gt; &amp; &quot;x&quot; &#39;y&#39;");
}

TEST(TimelineSvg, HasAPolygonForEachRoleThatThereIs) {
  const std::string svg = timeline_svg(moments({5, 20}), {.top_bytes = 30});
  EXPECT_EQ(count(svg, "<path"), 2u);
  // The peak, 30 of 30 bytes, is at the upper edge; 15 of them at half of the height of 320.
  EXPECT_NE(svg.find("M0,160.0H500.0V0.0H1000"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("budget"), std::string::npos);
  EXPECT_NE(svg.find("peak 30 B"), std::string::npos);
  EXPECT_EQ(count(svg, "<rect"), 2u);  // the key
  EXPECT_NE(svg.find(">activation</text>"), std::string::npos);
}

TEST(TimelineSvg, DrawsTheBudget) {
  const std::string svg = timeline_svg(moments({5}), {.top_bytes = 40, .budget_bytes = 20});
  EXPECT_NE(svg.find("y1='160.0' y2='160.0'"), std::string::npos) << svg;
  EXPECT_NE(svg.find("budget 20 B"), std::string::npos);
}

// Neighbours share a column, which shows the largest of them.
TEST(TimelineSvg, StaysSmallForManySteps) {
  std::vector<int64_t> bytes(50'000, 1);
  bytes[31'234] = 90;
  const std::string svg = timeline_svg(moments(bytes), {.top_bytes = 100});
  EXPECT_LT(svg.size(), 2'000u);
  EXPECT_NE(svg.find("V0.0H"), std::string::npos);
}

TEST(TimelineSvg, OfNothingIsEmpty) {
  EXPECT_EQ(count(timeline_svg({}, {}), "<path"), 0u);
}

}  // namespace
}  // namespace remat
