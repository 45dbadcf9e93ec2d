// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "remat/core/error.h"
#include "remat/libtorch/training_step.h"
#include "tests/libtorch/fault_trainer.h"

namespace remat::testing {
namespace {

// Trains beside a plain trainer, under a host that can be told to interrupt.
struct Interrupting {
  explicit Interrupting(Reads reads)
      : plain(reads), planned(reads), step([this](const Batch& batch) { return call(batch); }, options()) {}

  StepOptions options() {
    StepOptions made{.plan_seconds = 0.1, .measure_seconds = 0, .execute = {.poison = true}};
    made.host.poll = [this] {
      if (++polls == interrupt_at) {
        throw Interrupted("now");
      }
    };
    return made;
  }

  Batch call(const Batch& batch) {
    Batch results = planned(batch);
    if (interrupts_in_function) {
      throw Interrupted("now");
    }
    return results;
  }

  // Runs one step that is interrupted; whether it was.
  bool interrupted_at(int poll, const Batch& batch) {
    polls = 0;
    interrupt_at = poll;
    const auto thrown = planned.run([this](const Batch& given) { return step(given); }, batch);
    interrupt_at = -1;
    return thrown == "now";
  }

  void expect_same_step(int number) {
    EXPECT_EQ(plain.run_plainly(fault_batch(number)), std::nullopt);
    EXPECT_EQ(planned.run([this](const Batch& given) { return step(given); }, fault_batch(number)),
              std::nullopt);
    EXPECT_EQ(difference(plain.whole_state(), planned.whole_state()), "") << "step " << number;
  }

  FaultTrainer plain;
  FaultTrainer planned;
  bool interrupts_in_function = false;
  int polls = 0;
  int interrupt_at = -1;
  Step step;
};

class HostPoll : public ::testing::TestWithParam<Reads> {};

// In a planned step, before every op at which it can still be undone.
TEST_P(HostPoll, AnInterruptedStepIsUndone) {
  Interrupting pair(GetParam());
  for (int i = 0; i < 3; ++i) {
    pair.expect_same_step(i);
  }
  int poll = 1;
  for (; poll < 1000; poll += 3) {
    const NamedTensors before = pair.planned.lasting_state();
    if (!pair.interrupted_at(poll, fault_batch(3))) {
      break;
    }
    ASSERT_EQ(difference(before, pair.planned.lasting_state()), "") << "poll " << poll;
  }
  EXPECT_GT(poll, 10);
  EXPECT_EQ(pair.plain.run_plainly(fault_batch(3)), std::nullopt);  // as the last try went through
  EXPECT_EQ(difference(pair.plain.lasting_state(), pair.planned.lasting_state()), "");
  pair.expect_same_step(4);
}

// While the recorded step is measured, planned and tried out.
TEST_P(HostPoll, AnInterruptedFirstStepIsUndone) {
  for (const int poll : {1, 2, 10, 60, 150, 250}) {
    Interrupting pair(GetParam());
    pair.expect_same_step(0);  // makes the optimizer's state, and is not planned
    const NamedTensors before = pair.planned.lasting_state();
    ASSERT_TRUE(pair.interrupted_at(poll, fault_batch(1))) << "poll " << poll;
    EXPECT_EQ(difference(before, pair.planned.lasting_state()), "") << "poll " << poll;
    for (int i = 1; i < 5; ++i) {
      pair.expect_same_step(i);
    }
    EXPECT_GE(pair.step.report().planned_steps, 1);
  }
}

// Thrown by the function itself, as an interpreter does: recorded first, then followed.
TEST_P(HostPoll, AFunctionThatIsInterruptedIsUndone) {
  Interrupting pair(GetParam());
  for (int i = 0; i < 5; ++i) {
    pair.expect_same_step(i);
    const NamedTensors before = pair.planned.lasting_state();
    pair.interrupts_in_function = true;
    EXPECT_EQ(pair.planned.run([&](const Batch& given) { return pair.step(given); }, fault_batch(9)), "now");
    pair.interrupts_in_function = false;
    EXPECT_EQ(difference(before, pair.planned.lasting_state()), "") << "after step " << i;
  }
  EXPECT_GE(pair.step.report().planned_steps, 2);
}

INSTANTIATE_TEST_SUITE_P(Host, HostPoll, ::testing::Values(Reads::nowhere, Reads::in_forward, Reads::the_loss),
                         [](const auto& each) {
                           return each.param == Reads::nowhere      ? "ReadsNothing"
                                  : each.param == Reads::in_forward ? "ReadsInForward"
                                                                    : "ReadsTheLoss";
                         });

TEST(Host, NamesLayersLinesAndTensors) {
  torch::manual_seed(0);
  torch::nn::Linear linear(4, 4);
  StepOptions options{.plan_seconds = 0.1, .measure_seconds = 0};
  options.notice = [](const std::string& text) { ADD_FAILURE() << text; };
  options.host.call_site = [] { return CallSite{"my layer", "train.py:7"}; };
  options.host.name_of = [&](const at::Tensor& tensor) -> std::string {
    return tensor.is_same(linear->weight) ? "linear.weight" : tensor.is_same(linear->bias) ? "bias.1" : "";
  };
  Step step(
      [&](const Batch& batch) {
        for (at::Tensor& parameter : linear->parameters()) {
          parameter.mutable_grad().reset();
        }
        const at::Tensor rows = at::embedding(linear->forward(batch[0]), batch[1]);
        rows.sum().backward();
        return Batch{};
      },
      options);
  const at::Tensor x = torch::ones({3, 4});
  for (int i = 0; i < 2; ++i) {
    step({x, torch::tensor({0, 2})});
  }
  ASSERT_EQ(step.report().planned_steps, 1);
  const Graph& graph = step.graph();
  EXPECT_TRUE(std::ranges::all_of(graph.ops, [](const Op& op) { return op.scope == "my_layer"; }));
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(graph.storages, [&](const Storage& each) { return each.name == name; });
  };
  EXPECT_TRUE(has("linear.weight"));
  EXPECT_FALSE(has("bias.1"));  // could be the name of an op's result
  // A kernel that fails later, when the function has returned, is found again.
  EXPECT_THROW(step({x, torch::tensor({0, 9})}), c10::Error);
  EXPECT_EQ(step.failed_op(), "aten::embedding (layer my_layer, train.py:7)");
  step({x, torch::tensor({1, 2})});
  EXPECT_EQ(step.failed_op(), "");
}

// As a Step does.
TEST(Host, ATrainingStepSaysWhatFailedAndWhetherItWasUndone) {
  torch::manual_seed(0);
  const at::Tensor table = torch::randn({4, 4}, torch::requires_grad());
  bool interrupt = false;
  TrainingStepOptions options{.plan_seconds = 0.1, .measure_seconds = 0};
  options.host.poll = [&] {
    if (interrupt) {
      throw Interrupted("now");
    }
  };
  TrainingStep step([&](const Batch& batch) { return at::embedding(table, batch[0]).square().sum(); }, {table}, {},
                    std::move(options));
  const auto call = [&](int64_t row) {
    table.mutable_grad().reset();
    step({torch::tensor({int64_t{0}, row})});
  };
  call(2);
  call(3);
  ASSERT_EQ(step.report().planned_steps, 1);
  EXPECT_THROW(call(9), c10::Error);
  EXPECT_NE(step.failed_op().find("aten::embedding"), std::string::npos) << step.failed_op();
  EXPECT_FALSE(step.undone());
  interrupt = true;
  EXPECT_THROW(call(1), Interrupted);
  EXPECT_TRUE(step.undone());
  interrupt = false;
  call(1);
  EXPECT_EQ(step.failed_op(), "");
  EXPECT_FALSE(step.undone());
}

// A cycle of an interpreter's objects holds a result until the collector runs.
TEST(Host, CollectsBeforeItLooksAtWhatIsHeld) {
  torch::manual_seed(0);
  const at::Tensor weight = torch::randn({8, 8}, torch::requires_grad());
  at::Tensor in_a_cycle;
  int collected = 0;
  bool makes_a_cycle = false;
  StepOptions options{.plan_seconds = 0.1, .measure_seconds = 0};
  options.host.collect = [&] {
    ++collected;
    in_a_cycle = at::Tensor();
  };
  Step step(
      [&](const Batch& batch) {
        weight.mutable_grad().reset();
        const at::Tensor hidden = batch[0].mm(weight).relu();
        in_a_cycle = makes_a_cycle ? hidden : at::Tensor();
        hidden.sum().backward();
        return Batch{};
      },
      options);
  for (int i = 0; i < 6; ++i) {
    makes_a_cycle = i % 2 == 1;
    step({torch::randn({4, 8})});
  }
  EXPECT_EQ(step.report().plain_steps, 1);
  EXPECT_GE(collected, 3);
}

}  // namespace
}  // namespace remat::testing
