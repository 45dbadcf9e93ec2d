// SPDX-License-Identifier: Apache-2.0
#include "remat/report/profile_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remat/core/graph_text.h"

namespace remat {
namespace profile_report_test {

// At d_fc, the peak: w, x (externals), a1 and y kept, g made, a workspace of 5.
//     100 + 10 + 40 + 20 + 30 + 5 = 205
constexpr const char* kStep = R"(remat-graph 1
external w 100 param
external x 10 input
op conv forward kind=aten::conv time_ns=7 reads=x,w creates=a1:40 scope=layer1.0.conv
op tmp forward kind=aten::relu time_ns=1 reads=a1 creates=t:8 scope=layer1.1.relu
op fc forward kind=aten::conv time_ns=2 reads=t creates=y:20 scope=<head>
op d_fc backward kind=aten::d time_ns=9 workspace=5 reads=y,a1 creates=g:30 scope=layer1.0.conv
output g
)";

const ProfileRow* find(const std::vector<ProfileRow>& rows, std::string_view name) {
  for (const ProfileRow& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

int64_t total(const std::vector<ProfileRow>& rows) {
  int64_t bytes = 0;
  for (const ProfileRow& row : rows) bytes += row.bytes;
  return bytes;
}

TEST(Profile, EveryBreakdownSumsToThePeak) {
  const ProfileReport report = profile(parse_graph(kStep), 2);
  EXPECT_EQ(report.keep_all_peak_bytes, 205);
  EXPECT_EQ(report.peak_op, "layer1.0.conv/d_fc backward");
  EXPECT_EQ(report.op_time_ns, 19);
  EXPECT_EQ(total(report.roles), 205);
  EXPECT_EQ(total(report.phases), 205);
  EXPECT_EQ(total(report.layers), 205);
  EXPECT_EQ(report.timeline.size(), 4u);
}

// The update was a part of backward.
TEST(Profile, TheUpdateHasTimesOfItsOwn) {
  std::string text = kStep;
  text.insert(text.find("output"), "op step optimizer kind=aten::add_ time_ns=4 reads=g updates=w scope=optimizer\n");
  const ProfileReport report = profile(parse_graph(text), 2);
  const ProfileRow* layer = find(report.layers, "optimizer");
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(layer->optimizer_ns, 4);
  EXPECT_EQ(layer->backward_ns, 0);
  EXPECT_EQ(layer->time_ns(), 4);
  EXPECT_EQ(find(report.phases, "backward")->backward_ns, 9);
  EXPECT_EQ(profile_json(report)["by_layer"].back()["optimizer_ns"].is_number(), true);
  EXPECT_NE(profile_text(report, 5).find("update"), std::string::npos);
  EXPECT_EQ(profile_text(profile(parse_graph(kStep), 2), 5).find("update"), std::string::npos);
}

TEST(Profile, BytesBelongToWhatMadeThemAndExternalsToTheirFirstUser) {
  const ProfileReport report = profile(parse_graph(kStep), 2);
  const ProfileRow* layer = find(report.layers, "layer1.0");
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(layer->bytes, 100 + 10 + 40 + 30 + 5);
  EXPECT_EQ(layer->forward_ns, 7);
  EXPECT_EQ(layer->backward_ns, 9);
  EXPECT_EQ(layer->ops, 2);
  EXPECT_EQ(find(report.layers, "<head>")->bytes, 20);
  EXPECT_EQ(find(report.layers, "layer1.1")->bytes, 0) << "t died before the peak";
  EXPECT_EQ(find(report.phases, "before the step")->bytes, 110);
  EXPECT_EQ(find(report.phases, "forward")->bytes, 60);
  EXPECT_EQ(find(report.phases, "backward")->bytes, 35);
  EXPECT_EQ(find(report.roles, "workspace")->bytes, 5);
  EXPECT_EQ(report.kinds.front().name, "aten::conv") << "9 ns in two ops, as much as aten::d";
}

TEST(Profile, DepthCutsTheNamesOfLayers) {
  const Graph graph = parse_graph(kStep);
  EXPECT_NE(find(profile(graph, 1).layers, "layer1"), nullptr);
  EXPECT_NE(find(profile(graph, 3).layers, "layer1.0.conv"), nullptr);
  EXPECT_NE(find(profile(graph, 9).layers, "layer1.0.conv"), nullptr);
  EXPECT_NE(find(profile(graph, 0).layers, "layer1.0.conv"), nullptr);
}

TEST(Profile, RowsBeyondTheLimitAreSummedUp) {
  const std::string text = profile_text(profile(parse_graph(kStep), 2), 1);
  EXPECT_NE(text.find("(2 more)"), std::string::npos) << text;
}

TEST(Profile, GraphWithoutOps) {
  const ProfileReport report = profile(parse_graph("remat-graph 1\nexternal w 7 param\n"), 2);
  EXPECT_EQ(report.keep_all_peak_bytes, 7);
  EXPECT_EQ(total(report.layers), 7);
  EXPECT_TRUE(profile_details_json(report).at("timeline").at("bytes").empty());
}

// What the page draws are the numbers of the report.
TEST(Profile, DetailsAgreeWithTheSums) {
  const ProfileReport report = profile(parse_graph(kStep), 2);
  const nlohmann::json details = profile_details_json(report);
  const nlohmann::json& timeline = details.at("timeline");
  ASSERT_EQ(timeline.at("bytes").size(), report.timeline.size());
  EXPECT_EQ(timeline.at("bytes").at(report.peak_run), report.keep_all_peak_bytes);
  int64_t at_peak = 0;
  for (const auto& [role, bytes] : timeline.at("by_role").items()) {
    const int64_t there = (bytes.is_array() ? bytes.at(report.peak_run) : bytes).get<int64_t>();
    at_peak += there;
    const ProfileRow* row = find(report.roles, role);  // none: it has no bytes at the peak
    EXPECT_EQ(there, row == nullptr ? 0 : row->bytes) << role;
  }
  EXPECT_EQ(at_peak, report.keep_all_peak_bytes);
  int64_t time_ns = 0, created = 0, created_by_layers = 0;
  for (const nlohmann::json& each : details.at("ops").at("time_ns")) time_ns += each.get<int64_t>();
  for (const nlohmann::json& each : details.at("ops").at("created_bytes")) created += each.get<int64_t>();
  const nlohmann::json summed = profile_json(report);
  for (const nlohmann::json& layer : summed.at("by_layer")) {
    created_by_layers += layer.at("created_bytes").get<int64_t>();
  }
  EXPECT_EQ(time_ns, report.op_time_ns);
  EXPECT_EQ(created, created_by_layers);
}

}  // namespace profile_report_test
}  // namespace remat
