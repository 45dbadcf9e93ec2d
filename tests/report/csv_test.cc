// SPDX-License-Identifier: Apache-2.0
#include "remat/report/csv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/report/fit_report.h"
#include "remat/report/plan_report.h"
#include "remat/report/run_report.h"
#include "remat/report/sweep_report.h"
#include "tests/testing/moving_step.h"

namespace remat {
namespace csv_test {

using Json = nlohmann::json;

TEST(Csv, QuotesWhatNeedsIt) {
  const Json rows = Json::array({{{"name", "a,b"}, {"n", 1}},
                                 {{"name", "say \"x\""}, {"n", nullptr}},
                                 {{"name", "two\nlines"}},
                                 {{"name", "\xc3\xbc; plain"}, {"n", 0.5}},
                                 {{"name", " edge"}, {"n", true}}});
  EXPECT_EQ(csv_text(rows, {"name", "n"}),
            "name,n\n\"a,b\",1\n\"say \"\"x\"\"\",\n\"two\nlines\",\n\xc3\xbc; plain,0.5\n\" edge\",true\n");
}

TEST(Csv, WithoutRowsThereIsAHeader) { EXPECT_EQ(csv_text(Json::array(), {"a", "b"}), "a,b\n"); }

TEST(Csv, LargeNumbersKeepEveryDigit) {
  EXPECT_EQ(csv_text(Json::array({{{"n", int64_t{9007199254740993}}}}), {"n"}), "n\n9007199254740993\n");
}

// Every column of the first line has a cell in each of the others.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

const CsvTable* find(const std::vector<CsvTable>& tables, const std::string& name) {
  const auto found = std::ranges::find(tables, name, &CsvTable::name);
  return found == tables.end() ? nullptr : &*found;
}

TEST(Csv, ARunHasTheTablesOfItsPage) {
  const Graph graph = parse_graph(
      "remat-graph 1\nexternal x 8 input\nop f forward kind=k time_ns=5 reads=x creates=a:8\n"
      "op g backward kind=k time_ns=5 reads=a creates=b:8\noutput b\n");
  const Plan made = plan(graph, {.strategy = "keep_all", .placed = true});
  const Schedule schedule = rewrite(graph, made.order);
  const Json details = plan_details_json({graph, made, schedule, *made.placement, {16, 24}});
  RunReport report{.eager_peak_bytes = 24, .eager_step_ns = 10};
  report.methods = {{.method = "auto", .measured_peak_bytes = 24},
                    {.method = "every_k", .feasible = false, .fault = "too \"little\""},
                    {.method = "checkpoint", .bit_identical = {.loss = false}}};
  const std::vector<CsvTable> tables = run_csv(run_json(report), details);
  std::vector<std::string> names;
  for (const CsvTable& table : tables) names.push_back(table.name);
  EXPECT_EQ(names, (std::vector<std::string>{"methods", "layers", "values", "runs", "arena"}));
  const std::vector<std::string> methods = lines_of(find(tables, "methods")->text);
  ASSERT_EQ(methods.size(), 5u);
  EXPECT_NE(methods[0].find("same_loss,same_gradients"), std::string::npos);
  EXPECT_NE(methods[2].find("true,true"), std::string::npos);
  EXPECT_NE(methods[3].find("\"too \"\"little\"\"\""), std::string::npos);
  EXPECT_NE(methods[4].find("false,true"), std::string::npos);
  EXPECT_NE(lines_of(find(tables, "runs")->text)[0].find("measured_bytes"), std::string::npos);
  EXPECT_EQ(run_csv(run_json(report), Json::object()).size(), 1u);
}

TEST(Csv, RunsSayWhatIsPackedAndWhatIsAway) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const Schedule schedule = parse_schedule(testing::kMovingStepSchedule, graph);
  Plan made;
  made.order = order_of(graph, schedule);
  ASSERT_EQ(rewrite(graph, made.order), schedule);
  const Json details = plan_details_json({graph, made, schedule, place(graph, schedule)});
  const std::vector<CsvTable> tables = plans_csv(Json::array(), details);
  const std::vector<std::string> runs = lines_of(find(tables, "runs")->text);
  ASSERT_EQ(runs.size(), 15u);
  EXPECT_EQ(runs[0].substr(0, 19), "op,layer,bytes,move");
  EXPECT_EQ(runs[1].substr(0, 20), "f1,(no layer),68,,64");
  EXPECT_EQ(runs[3].substr(0, 23), "f1,(no layer),170,pack,");
  EXPECT_EQ(runs[5].substr(0, 26), "f2,(no layer),146,offload,");
  const std::string values = find(tables, "values")->text;
  for (const char* action : {"m,(no layer),activation,64,pack,", "a,(no layer),activation,100,offload,", "40,pack,"}) {
    EXPECT_NE(values.find(action), std::string::npos) << action << "\n" << values;
  }
  const std::vector<std::string> layers = lines_of(find(tables, "layers")->text);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_NE(layers[0].find("packed_values,packed_bytes,offloaded_values,offloaded_bytes"), std::string::npos);
  EXPECT_NE(layers[1].find(",2,104,1,100,0,"), std::string::npos) << layers[1];
}

TEST(Csv, AFitHasARowForEitherWay) {
  FitReport report{.along = "sequence", .per = "token"};
  report.fit.plain = {.size = 16, .measured_peak_bytes = 7, .step_ns = 160};
  report.fit.planned = {.size = 64, .measured_peak_bytes = 7, .step_ns = 6400};
  const std::vector<CsvTable> tables = fit_csv(fit_json(report));
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables.front().text,
            "method,size,predicted_peak_bytes,measured_peak_bytes,reserved_bytes,step_ns,ns_per_token\n"
            "plain,16,0,7,0,160,10\nplanned,64,0,7,0,6400,100\n");
}

TEST(Csv, BatchesSayWhatIsEstimatedAndWhatThePlanWasGiven) {
  SweepReport report;
  report.batches.push_back({.batch = 4, .plain = {.peak_bytes = 9}, .plain_estimated = true, .budget_bytes = 6});
  const std::vector<std::string> lines = lines_of(find(sweep_csv(sweep_json(report)), "batches")->text);
  EXPECT_EQ(lines[0].substr(0, lines[0].find(",plain_fits")), "batch,plain_peak_bytes,plain_estimated");
  EXPECT_NE(lines[0].find("planned_budget_bytes"), std::string::npos);
  EXPECT_EQ(lines[1].substr(0, 8), "4,9,true");
}

}  // namespace csv_test
}  // namespace remat
