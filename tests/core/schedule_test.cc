// SPDX-License-Identifier: Apache-2.0
#include "remat/core/schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace schedule_test {

std::vector<std::string> names(const Graph& graph, const Schedule& schedule,
                               std::span<const InstanceId> ids) {
  std::vector<std::string> found;
  for (const InstanceId id : ids) {
    found.push_back(instance_name(graph, schedule.instances[index(id)]));
  }
  return found;
}

TEST(Schedule, OperandsAreReadsThenUpdatesThenCreates) {
  const Graph graph = parse_graph(testing::kSmallStepGraph);
  const Schedule schedule = parse_schedule(testing::kSmallStepSchedule, graph);
  using Names = std::vector<std::string>;
  size_t looked_at = 0;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind == StepKind::free) continue;
    const std::string& op = graph.op(step.op).name;
    if (op == "step") {
      EXPECT_EQ(names(graph, schedule, schedule.reads(graph, step)), Names{"ga"});
      EXPECT_EQ(names(graph, schedule, schedule.updates(graph, step)), Names{"w"});
      EXPECT_TRUE(schedule.creates(graph, step).empty());
      ++looked_at;
    }
    if (op == "d_norm") {
      EXPECT_EQ(names(graph, schedule, schedule.reads(graph, step)), (Names{"gb", "a#1", "mean"}));
      EXPECT_TRUE(schedule.updates(graph, step).empty());
      EXPECT_EQ(names(graph, schedule, schedule.creates(graph, step)), Names{"ga"});
      ++looked_at;
    }
    if (op == "conv") {
      const bool again = step.kind == StepKind::recompute;
      EXPECT_EQ(names(graph, schedule, schedule.creates(graph, step)), Names{again ? "a#1" : "a"});
      ++looked_at;
    }
  }
  EXPECT_EQ(looked_at, 4u);
}

TEST(Schedule, ACopyBeyondTheFirstHasItsNumberInItsName) {
  const Graph graph = parse_graph(testing::kSmallStepGraph);
  const StorageId x{};
  EXPECT_EQ(instance_name(graph, {.storage = x, .copy = 0}), "x");
  EXPECT_EQ(instance_name(graph, {.storage = x, .copy = 12}), "x#12");
}

}  // namespace schedule_test
}  // namespace remat
