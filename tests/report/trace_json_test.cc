// SPDX-License-Identifier: Apache-2.0
#include "remat/report/trace_json.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "remat/core/graph_builder.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/moving_step.h"

namespace remat {
namespace trace_json_test {

using Json = nlohmann::json;

// f runs again before df: x 10, a 40, b 4.
constexpr const char* kStep = R"(remat-graph 1
external x 10 input
op f forward kind=aten::f time_ns=1500 reads=x creates=a:40 scope=first
op g forward kind=aten::g time_ns=500 reads=a creates=b:4 scope=second
op df backward kind=aten::d time_ns=1000 reads=b,a creates=da:2 scope=first
output da
)";

TEST(TraceJson, CallsStandOneAfterTheOther) {
  const Graph graph = parse_graph(kStep);
  const std::vector<OpId> order = {OpId{0}, OpId{1}, OpId{0}, OpId{2}};
  const std::vector<TraceCall> calls = planned_calls(graph, rewrite(graph, order));
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[2].start_ns, 2000);
  EXPECT_TRUE(calls[2].kind == StepKind::recompute);
  EXPECT_EQ(calls[3].start_ns, 3500);
  EXPECT_EQ(calls[1].memory.bytes, 54);

  const Json trace = Json::parse(trace_json(graph, {{"planned", calls}}));
  std::vector<std::string> ops, layers;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    (event["args"].contains("ops") ? layers : ops).push_back(event["name"]);
    if (event["cat"] == "recompute") {
      EXPECT_EQ(event["ts"], 2.0);  // microseconds
    }
  }
  EXPECT_EQ(ops, (std::vector<std::string>{"f", "g", "f", "df"}));
  EXPECT_EQ(layers, (std::vector<std::string>{"first", "second", "first"}));
}

TEST(TraceJson, MeasuredBytesAreACounterOfTheirOwn) {
  const Graph graph = parse_graph(kStep);
  std::vector<TraceCall> calls = planned_calls(graph, rewrite(graph, given_order(graph)));
  EXPECT_EQ(trace_json(graph, {{"planned", calls}}).find("measured bytes"), std::string::npos);
  for (TraceCall& call : calls) call.measured_bytes = 77;
  const Json trace = Json::parse(trace_json(graph, {{"measured", calls}}));
  int counted = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] != "measured bytes") continue;
    ++counted;
    EXPECT_EQ(event["args"]["bytes"], 77);
  }
  EXPECT_EQ(counted, 3);
}

// Packing has a track of its own, and so have the transfers, which go on beside the ops.
TEST(TraceJson, MovesHaveTracks) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const Schedule schedule = parse_schedule(testing::kMovingStepSchedule, graph);
  const Json trace = Json::parse(trace_json(graph, {{"planned", planned_calls(graph, schedule)}}));
  std::map<int, std::string> tracks;
  std::map<std::string, std::vector<std::string>> on_track;
  double transfers_us = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") tracks[event["tid"]] = event["args"]["name"];
    if (event["ph"] != "X") continue;
    const std::string track = tracks.at(event["tid"]);
    on_track[track].push_back(event["cat"]);
    if (track == "written and read") transfers_us += event["dur"].get<double>();
  }
  EXPECT_EQ(on_track["packed and unpacked"], (std::vector<std::string>{"pack", "pack", "unpack"}));
  EXPECT_EQ(on_track["written and read"], (std::vector<std::string>{"offload", "prefetch"}));
  EXPECT_EQ(on_track["layers and ops"].size(), 9u);
  EXPECT_FALSE(on_track.contains("computed again"));
  EXPECT_DOUBLE_EQ(1000 * transfers_us, static_cast<double>(graph.channel->write_ns(100) + graph.channel->read_ns(100)));
}

TEST(TraceJson, NamesAreEscaped) {
  GraphBuilder builder;
  builder.external("x", 8, Role::input);
  builder.op({.name = "f", .kind = "k", .reads = {"x"}, .creates = {{"a", 8}}, .scope = "</script>"});
  Graph graph = std::move(builder).build();
  graph.ops[0].name = "f\"\n\xc3\xbc\xff";
  const Json trace =
      Json::parse(trace_json(graph, {{"\"", planned_calls(graph, rewrite(graph, given_order(graph)))}}));
  EXPECT_EQ(trace["traceEvents"][4]["name"], "f\"\n\xc3\xbc\xef\xbf\xbd");
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "\"");
}

}  // namespace trace_json_test
}  // namespace remat
