// SPDX-License-Identifier: Apache-2.0
#include "remat/report/save_html.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"

namespace remat {
namespace save_html_test {

constexpr const char* kStep = R"(remat-graph 1
external x 10 input
op f forward kind=aten::f time_ns=7 reads=x creates=a:40 scope=first
op g forward kind=aten::g time_ns=5 reads=a creates=b:4 scope=second
op h forward kind=aten::h time_ns=5 reads=b creates=c:30 scope=second
op dg backward kind=aten::d time_ns=5 reads=c creates=dc:1 scope=second
op df backward kind=aten::d time_ns=5 reads=dc,a creates=da:2 scope=first
output da
)";

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

nlohmann::json data_of(const std::string& path) {
  const std::string page = text_of(path), begin = "id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

// What Step and TrainingStep offer, without LibTorch.
struct PretendedStep {
  struct Report {
    int64_t budget_bytes = 60;
    double plan_seconds = 0.5;
    std::vector<int64_t> measured_bytes = {};
  };
  Graph graph_ = parse_graph(kStep);
  Plan plan_ = remat::plan(graph_, {.budget_bytes = 60});
  Schedule schedule_ = rewrite(graph_, plan_.order);
  Report report() const { return {.measured_bytes = std::vector<int64_t>(plan_.order.size(), 50)}; }
  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  const Schedule& schedule() const { return schedule_; }
};

TEST(SaveHtml, OfAStep) {
  const PretendedStep step;
  ASSERT_TRUE(step.plan_.feasible);
  ASSERT_FALSE(verify(step.graph_, step.schedule_, 60));
  const std::string path = ::testing::TempDir() + "/step.html";
  save_html(step, path);
  const nlohmann::json data = data_of(path);
  EXPECT_EQ(data.at("budget_bytes"), 60);
  EXPECT_EQ(data.at("peak_bytes"), step.plan_.peak_bytes);
  EXPECT_EQ(data.at("schedules").at("planned").at("peak_bytes"), step.plan_.peak_bytes);
  EXPECT_EQ(data.at("schedules").at("planned").at("time_ns"), step.plan_.time_ns);
  EXPECT_EQ(data.at("schedules").at("planned").at("op").size(), step.plan_.order.size());
  EXPECT_EQ(data.at("schedules").at("planned").at("measured_bytes").size(), step.plan_.order.size());
  EXPECT_EQ(data.at("schedules").at("keep_all").at("peak_bytes"), data.at("keep_all_peak_bytes"));
  EXPECT_EQ(data.at("values").at("storage"), nlohmann::json({"a"}));
  EXPECT_EQ(data.at("values").at("action"), nlohmann::json({"recompute"}));
  EXPECT_EQ(data.at("layers").at(0).at("layer"), "first");
  EXPECT_EQ(data.at("layers").at(0).at("extra_ns"), 7);
  EXPECT_EQ(data.at("arena").at("arena_bytes"), data.at("arena_bytes"));
}

TEST(SaveHtml, OfAProfile) {
  const std::string path = ::testing::TempDir() + "/profile.html";
  const ProfileReport report = profile(parse_graph(kStep), 2);
  save_html(report, path);
  const nlohmann::json data = data_of(path);
  EXPECT_EQ(data.at("keep_all_peak_bytes"), report.keep_all_peak_bytes);
  EXPECT_EQ(data.at("ops").at("name").size(), 5u);
}

// All pages were called alike, or not at all.
TEST(SaveHtml, TitlesTellPagesApart) {
  const std::string path = ::testing::TempDir() + "/titled.html";
  const auto title = [&] {
    const std::string page = text_of(path);
    const size_t from = page.find("<title>") + 7;
    return page.substr(from, page.find("</title>") - from);
  };
  ProfileReport report = profile(parse_graph(kStep), 2);
  save_html(report, path);
  EXPECT_EQ(title(), "Profile of a step");
  report.model = "resnet50, batch 32";
  save_html(report, path);
  EXPECT_EQ(title(), "Profile of resnet50, batch 32");
  save_html(PretendedStep(), path);
  EXPECT_EQ(title(), "Plan of a training step");
}

TEST(SaveHtml, OfSumsOnlyIsRefused) {
  EXPECT_THROW(save_html(PlanReport{}, ::testing::TempDir() + "/none.html"), Error);
}

}  // namespace save_html_test
}  // namespace remat
