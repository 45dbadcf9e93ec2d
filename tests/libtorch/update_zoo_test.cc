// SPDX-License-Identifier: Apache-2.0
// Models of the zoo with AdamW inside of the step: five steps in little memory, with the bits of the plain loop.
#include <gtest/gtest.h>

#include "remat/core/plan.h"
#include "remat/libtorch/training_step.h"
#include "tests/libtorch/named_tensors.h"
#include "tests/libtorch/tiny_zoo.h"

namespace remat::testing {
namespace {

struct ZooTraining {
  explicit ZooTraining(const std::string& name) {
    torch::manual_seed(5);
    const models::ZooEntry& entry = models::find_model(name);
    task = entry.make(tiny_size(entry));
    optimizer = std::make_unique<torch::optim::AdamW>(task.module->parameters(), torch::optim::AdamWOptions(1e-3));
  }

  // Losses of all steps and what the last one left.
  NamedTensors train(const std::function<at::Tensor(const Batch&)>& step) {
    torch::manual_seed(6);
    NamedTensors left;
    for (int i = 0; i < 5; ++i) {
      left.emplace_back("loss", step(task.make_batch(i + 1)).clone());
    }
    left.emplace_back("generator", generator_state());
    add_numbered(left, "parameter", task.module->parameters());
    add_numbered(left, "buffer", task.module->buffers());
    for (const at::Tensor& parameter : task.module->parameters()) {
      const auto& state = dynamic_cast<const torch::optim::AdamWParamState&>(
          *optimizer->state().at(parameter.unsafeGetTensorImpl()));
      left.emplace_back("mean", state.exp_avg());
      left.emplace_back("square", state.exp_avg_sq());
    }
    return cloned(std::move(left));
  }

  models::TrainingTask task;
  std::unique_ptr<torch::optim::AdamW> optimizer;
};

class UpdateInsideZoo : public ::testing::TestWithParam<std::string> {};

TEST_P(UpdateInsideZoo, TrainsAsThePlainLoop) {
  ZooTraining plain(GetParam());
  const NamedTensors expected = plain.train([&](const Batch& batch) {
    const at::Tensor loss = plain.task.loss(batch);
    loss.backward();
    plain.optimizer->step();
    plain.optimizer->zero_grad();
    return loss.detach();
  });
  ZooTraining inside(GetParam());
  // Of what lies between the least and everything, a third.
  const auto budget = [](const Graph& graph) {
    const int64_t least = floor(graph).bytes;
    return least + (keep_all_baseline(graph).peak_bytes - least) / 3;
  };
  TrainingStep step([&](const Batch& batch) { return inside.task.loss(batch); }, inside.task.module->parameters(),
                    inside.task.module->buffers(),
                    {.budget_of = budget,
                     .plan_seconds = 0.2,
                     .measure_seconds = 0,
                     .execute = {.poison = true},
                     .update = [&] { inside.optimizer->step(); }});
  EXPECT_EQ(difference(expected, inside.train([&](const Batch& batch) { return step(batch); })), "");
  const StepReport report = step.report();
  EXPECT_EQ(report.planned_steps, 3);  // the first made the state, the second was recorded
  EXPECT_LE(report.peak_bytes, report.budget_bytes);
  EXPECT_EQ(report.measured_peak_bytes, report.predicted_peak_bytes);
}

// Without the deepest: their layers are those of ResNet-18 and -50, and their updates thousands of ops.
std::vector<std::string> trained_models() {
  std::vector<std::string> names = zoo_names();
  std::erase(names, "resnet152");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Zoo, UpdateInsideZoo, ::testing::ValuesIn(trained_models()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace remat::testing
