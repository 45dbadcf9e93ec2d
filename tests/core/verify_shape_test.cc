// SPDX-License-Identifier: Apache-2.0

// Schedules that no text can express.

#include "remat/core/verify_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "remat/core/graph_text.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace verify_shape_test {

using Kind = ViolationKind;

class ScheduleShape : public ::testing::Test {
 protected:
  void expect(Kind kind, std::string_view phrase) {
    const auto violation = detail::shape_violation(graph_, schedule_);
    ASSERT_TRUE(violation.has_value());
    EXPECT_EQ(name(violation->kind), name(kind)) << violation->reason;
    EXPECT_NE(violation->reason.find(phrase), std::string::npos) << violation->reason;
    EXPECT_TRUE(verify(graph_, schedule_, std::numeric_limits<int64_t>::max()));
  }
  Graph graph_ = parse_graph(testing::kSmallStepGraph);
  Schedule schedule_ = parse_schedule(testing::kSmallStepSchedule, graph_);
};

TEST_F(ScheduleShape, OfARightScheduleIsRight) {
  EXPECT_FALSE(detail::shape_violation(graph_, schedule_));
}

TEST_F(ScheduleShape, OpsThatDoNotExist) {
  schedule_.steps[2].op = static_cast<OpId>(13);
  expect(Kind::unknown_op, "op 13; expected 0 to 12");
  schedule_.steps[2].op = static_cast<OpId>(-1);
  expect(Kind::unknown_op, "op -1");
}

TEST_F(ScheduleShape, InstancesThatDoNotExist) {
  schedule_.operands[1] = kNoInstance;
  expect(Kind::unknown_op, "instance -1; expected 0 to 12");
  schedule_.operands[1] = static_cast<InstanceId>(13);
  expect(Kind::unknown_op, "instance 13");
}

TEST_F(ScheduleShape, FreesOfWhatDoesNotExist) {
  schedule_.steps[4].instance = static_cast<InstanceId>(std::numeric_limits<int32_t>::max());
  expect(Kind::unknown_op, "frees instance 2147483647");
}

TEST_F(ScheduleShape, PlacesThatDoNotExist) {
  const auto result = std::find_if(schedule_.instances.begin(), schedule_.instances.end(),
                                   [](const Instance& i) { return i.in_place_of != kNoInstance; });
  result->in_place_of = static_cast<InstanceId>(-7);
  expect(Kind::unknown_op, "takes the place of instance -7");
  result->in_place_of = static_cast<InstanceId>(99);
  expect(Kind::unknown_op, "takes the place of instance 99");
}

TEST_F(ScheduleShape, OperandRangesThatDoNotFit) {
  for (const int32_t first : {-1, 1000, std::numeric_limits<int32_t>::min(),
                              static_cast<int32_t>(schedule_.operands.size()) - 2}) {
    schedule_.steps[1].first_operand = first;
    expect(Kind::malformed, "3 operands start at " + std::to_string(first));
  }
}

TEST_F(ScheduleShape, KindsOfStepThatDoNotExist) {
  schedule_.steps[3].kind = static_cast<StepKind>(77);
  expect(Kind::malformed, "kind 77");
}

TEST_F(ScheduleShape, MovesInAGraphThatHasNone) {
  for (const StepKind kind : {StepKind::pack, StepKind::unpack, StepKind::offload, StepKind::prefetch}) {
    schedule_.steps[1].kind = kind;
    expect(Kind::malformed, "the step is " + std::string(name(kind)) + " of something else; expected run");
  }
}

class ShapeOfMoves : public ScheduleShape {
 protected:
  ShapeOfMoves() {
    graph_ = parse_graph(testing::kMovingStepGraph);
    schedule_ = parse_schedule(testing::kMovingStepSchedule, graph_);
  }
};

TEST_F(ShapeOfMoves, OfARightScheduleIsRight) { EXPECT_FALSE(detail::shape_violation(graph_, schedule_)); }

TEST_F(ShapeOfMoves, StepsOfAnotherKindThanTheirMove) {
  ASSERT_EQ(schedule_.steps[2].kind, StepKind::pack);
  for (const StepKind kind : {StepKind::run, StepKind::recompute, StepKind::unpack, StepKind::offload,
                              StepKind::prefetch}) {
    schedule_.steps[2].kind = kind;
    expect(Kind::malformed, "of something else; expected pack");
  }
}

// An op that reads packed bytes runs and is recomputed as any other.
TEST_F(ShapeOfMoves, ReadersAreOps) {
  ASSERT_TRUE(graph_.is_move(schedule_.steps[13].op));
  schedule_.steps[13].kind = StepKind::recompute;
  EXPECT_FALSE(detail::shape_violation(graph_, schedule_));
  schedule_.steps[13].kind = StepKind::unpack;
  expect(Kind::malformed, "the step is unpack of something else; expected run");
}

TEST_F(ShapeOfMoves, MovesThatDoNotExist) {
  schedule_.steps[2].op = static_cast<OpId>(graph_.op_count());
  expect(Kind::unknown_op, "op " + std::to_string(graph_.op_count()));
}

TEST_F(ShapeOfMoves, FormsThatDoNotExist) {
  schedule_.instances.push_back({static_cast<StorageId>(graph_.storage_count()), 0, kNoInstance});
  expect(Kind::malformed, "storage " + std::to_string(graph_.storage_count()));
}

TEST_F(ScheduleShape, InstancesOfStoragesThatDoNotExist) {
  schedule_.instances.push_back({static_cast<StorageId>(-3), 0, kNoInstance});
  expect(Kind::malformed, "storage -3");
}

TEST_F(ScheduleShape, ExternalsThatAreNotTheFirstInstances) {
  std::swap(schedule_.instances[0], schedule_.instances[1]);
  expect(Kind::malformed, "instance 0 is w; expected the external x");
  schedule_.instances.resize(2);
  expect(Kind::malformed, "2 instances; expected at least the 3 externals");
  schedule_ = {};
  expect(Kind::malformed, "0 instances");
}

}  // namespace verify_shape_test
}  // namespace remat
