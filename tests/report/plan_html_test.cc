// SPDX-License-Identifier: Apache-2.0
#include "remat/report/plan_html.h"

#include <gtest/gtest.h>

#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"

namespace remat {
namespace {

// a is kept from f to df: 10 + 40 + 30 at g. Without it, 50.
constexpr const char* kStep = R"(remat-graph 1
external x 10 input
op f forward kind=aten::f time_ns=7 reads=x creates=a:40 scope=<first>
op g forward kind=aten::g time_ns=5 reads=a creates=b:4 scope=second
op h forward kind=aten::h time_ns=5 reads=b creates=c:30 scope=second
op dg backward kind=aten::d time_ns=5 reads=c creates=dc:1 scope=second
op df backward kind=aten::d time_ns=5 reads=dc,a creates=da:2 scope=<first>
output da
)";

TEST(PlanHtml, ShowsBothStepsAndWhatIsComputedAgain) {
  const Graph graph = parse_graph(kStep);
  const Plan made = plan(graph, {.budget_bytes = 60});
  ASSERT_TRUE(made.feasible);
  const Schedule schedule = rewrite(graph, made.order);
  ASSERT_FALSE(verify(graph, schedule, 60));
  const std::string page = plan_html(graph, schedule, 60, "<train> & \"test\"");
  EXPECT_NE(page.find("<h1>&lt;train&gt; &amp; &quot;test&quot;</h1>"), std::string::npos);
  EXPECT_NE(page.find("<h2>Plain</h2>"), std::string::npos);
  EXPECT_NE(page.find("<h2>Planned</h2>"), std::string::npos);
  EXPECT_NE(page.find("budget 60 B"), std::string::npos);
  EXPECT_NE(page.find("<td>&lt;first&gt;</td><td>1</td><td>7 ns</td>"), std::string::npos) << page;
  EXPECT_EQ(page.find("<first>"), std::string::npos);
}

TEST(PlanHtml, WithoutABudgetThereIsNoLine) {
  const Graph graph = parse_graph(kStep);
  const Schedule schedule = rewrite(graph, given_order(graph));
  EXPECT_EQ(plan_html(graph, schedule, kNoBudget, "t").find("budget"), std::string::npos);
  EXPECT_EQ(plan_html(graph, schedule, kNoBudget, "t").find("Computed again"), std::string::npos);
  EXPECT_EQ(plan_html(graph, schedule, kNoBudget, "t").find("http"), std::string::npos);
  EXPECT_EQ(plan_svg(graph, schedule, 100).find("<svg xmlns='http://www.w3.org/2000/svg' viewBox="), 0u);
}

}  // namespace
}  // namespace remat
