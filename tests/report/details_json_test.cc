// SPDX-License-Identifier: Apache-2.0
#include "remat/report/details_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remat/core/graph_text.h"
#include "remat/core/place.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/core/verify.h"
#include "tests/testing/moving_step.h"

namespace remat {
namespace details_json_test {

using Json = nlohmann::json;

// a is forgotten after g and made again for df.
constexpr const char* kStep = R"(remat-graph 1
external x 10 input
op f forward kind=aten::f time_ns=7 workspace=3 reads=x creates=a:40 scope=first.f
op g forward kind=aten::g time_ns=5 reads=a creates=b:4
op h forward kind=aten::h time_ns=5 reads=b creates=c:30
op dh backward kind=aten::d time_ns=5 reads=c creates=dc:30 reuse=dc<c
op df backward kind=aten::d time_ns=5 reads=dc,a creates=da:2
output da
)";

struct Step {
  Graph graph = parse_graph(kStep);
  Schedule schedule = rewrite(graph, std::vector<OpId>{OpId{0}, OpId{1}, OpId{2}, OpId{3}, OpId{0}, OpId{4}});
};

// Values that are packed and offloaded, and come back.
struct MovingStep {
  Graph graph = parse_graph(testing::kMovingStepGraph);
  Schedule schedule = parse_schedule(testing::kMovingStepSchedule, graph);
};

TEST(ScheduleJson, HasEveryRunInItsOrder) {
  const Step step;
  ASSERT_FALSE(verify(step.graph, step.schedule, kNoBudget));
  const Json json = schedule_json(step.graph, step.schedule);
  EXPECT_EQ(json.at("op"), Json({0, 1, 2, 3, 0, 4}));
  EXPECT_EQ(json.at("time_ns"), 34);
  // x; x + a + 3 of workspace; + b; x + b + c; x + c/dc; ...
  EXPECT_EQ(json.at("bytes"), Json({53, 54, 44, 40, 83, 82}));
  EXPECT_EQ(json.at("peak_bytes"), 83);
  EXPECT_EQ(json.at("peak_run"), 4);
  EXPECT_EQ(json.at("by_role").at("input"), 10) << "at every run";
  EXPECT_EQ(json.at("by_role").at("workspace"), Json({3, 0, 0, 0, 3, 0}));
  EXPECT_FALSE(json.at("by_role").contains("param"));
  EXPECT_FALSE(json.contains("measured_bytes"));
}

// After g nothing of f is there, after h nothing of g; dh writes over what h made.
TEST(ScheduleJson, SaysWhatIsForgotten) {
  const Step step;
  const Json json = schedule_json(step.graph, step.schedule, {.by_role = false});
  EXPECT_EQ(json.at("emptied"),
            Json({Json::array(), {0}, {1}, {2}, Json::array(), {3, 0}}));
  EXPECT_FALSE(json.contains("by_role"));
}

// r changes a in place and is there for as long as a is; s changes an external, and leaves nothing.
TEST(ScheduleJson, OpsInPlaceLeaveWhatTheyChange) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 10 input
op f forward kind=aten::f time_ns=1 reads=x creates=a:40
op r forward kind=aten::r time_ns=1 updates=a
op s forward kind=aten::s time_ns=1 updates=x
op g forward kind=aten::g time_ns=1 reads=a creates=b:4
output b
)");
  const nlohmann::json json = schedule_json(graph, rewrite(graph, given_order(graph)));
  EXPECT_EQ(json.at("emptied"), Json({Json::array(), Json::array(), {2}, {0, 1}}));
}

TEST(ScheduleJson, HoldsWhatWasMeasured) {
  const Step step;
  const std::vector<int64_t> measured = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(schedule_json(step.graph, step.schedule, {.measured_bytes = measured}).at("measured_bytes"),
            Json(measured));
}

// A move stands for the op that made the value. f1, f2, pack m, f3, offload a, f4, relu, f5, pack r, b5,
// prefetch a, b3, unpack m, b2.
TEST(ScheduleJson, SaysWhatIsPackedAndWhatIsAway) {
  const MovingStep step;
  ASSERT_FALSE(verify(step.graph, step.schedule, kNoBudget));
  const Json json = schedule_json(step.graph, step.schedule);
  EXPECT_EQ(json.at("op"), Json({0, 1, 0, 2, 1, 3, 4, 5, 2, 6, 1, 7, 0, 8}));
  EXPECT_EQ(json.at("moves"),
            Json({{2, "pack"}, {4, "offload"}, {8, "pack"}, {10, "prefetch"}, {12, "unpack"}}));
  EXPECT_EQ(json.at("peak_bytes"), testing::kMovingStepPeakBytes);
  EXPECT_EQ(json.at("peak_run"), 2);
  const Simulation simulation = simulate(step.graph, step.schedule);
  EXPECT_EQ(json.at("time_ns"), simulation.time_ns);
  ASSERT_EQ(json.at("start_ns").size(), 14u);
  EXPECT_EQ(json.at("start_ns")[3], 33) << "after f1, f2 and packing m";
  // r was made by f3 and changed by relu; m and a are of f1 and f2 again when they are back.
  const Json none = Json::array();
  EXPECT_EQ(json.at("emptied"), Json({none, none, {0}, none, none, none, none, {3}, {2, 4, 1}, {2}, none, {6, 1}, none,
                                      {7, 0}}));
}

// At every run the blocks that it meets are as many bytes as are resident besides the externals.
void expect_blocks_add_up(const Graph& graph, const Schedule& schedule, size_t block_count) {
  const Placement placement = place(graph, schedule);
  const Json arena = arena_json(graph, schedule, placement);
  const Json runs = schedule_json(graph, schedule);
  for (size_t run = 0; run < runs.at("bytes").size(); ++run) {
    int64_t bytes = graph.external_bytes();
    for (size_t i = 0; i < arena.at("offset").size(); ++i) {
      if (arena.at("from")[i] <= run && run <= arena.at("to")[i]) bytes += arena.at("bytes")[i].get<int64_t>();
      EXPECT_LE(arena.at("offset")[i].get<int64_t>() + arena.at("bytes")[i].get<int64_t>(),
                placement.arena_bytes);
    }
    EXPECT_EQ(bytes, runs.at("bytes").at(run)) << run;
  }
  EXPECT_EQ(arena.at("arena_bytes"), placement.arena_bytes);
  EXPECT_EQ(arena.at("role").size(), block_count);
}

TEST(ArenaJson, BlocksAddUpToWhatIsResident) {
  const Step step;
  expect_blocks_add_up(step.graph, step.schedule, 8);  // a twice, b, c, dc, da, workspace twice
}

// What is on a channel has no block: m and a twice, r, m~, r~, s, l, g5, g3, g2, workspace.
TEST(ArenaJson, PackedValuesHaveBlocksAndThoseAwayHaveNone) {
  const MovingStep step;
  expect_blocks_add_up(step.graph, step.schedule, 13);
}

TEST(OpsJson, LayersAndPhases) {
  const Json ops = ops_json(Step().graph);
  EXPECT_EQ(ops.at("layer"), Json({"first.f", "(no layer)", "(no layer)", "(no layer)", "(no layer)"}));
  EXPECT_EQ(ops.at("phase")[3], "backward");
}

TEST(DetailsJson, OfAGraphWithoutOps) {
  const Graph graph = parse_graph("remat-graph 1\nexternal w 7 param\n");
  const Schedule schedule = rewrite(graph, {});
  EXPECT_EQ(schedule_json(graph, schedule).at("peak_bytes"), 7);
  EXPECT_TRUE(arena_json(graph, schedule, place(graph, schedule)).at("offset").empty());
}

}  // namespace details_json_test
}  // namespace remat
