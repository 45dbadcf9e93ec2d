// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/core/plan.h"
#include "remat/libtorch/execute.h"
#include "remat/models/zoo.h"

namespace remat {

// A model of its own, its optimizer, and one way to run the training step: plain, eagerly
// checkpointed, or by a plan. From the same seed, all of them start alike.
class Trainee {
 public:
  explicit Trainee(models::TrainingTask task);
  virtual ~Trainee() = default;

  // Drops the gradients, runs forward and backward, and leaves gradients in the parameters. Returns
  // the loss, without history.
  at::Tensor step(const Batch& batch);
  void update() { optimizer_.step(); }

  // Runs `work`, then gives buffers and the default generator the contents they had before, and
  // drops the gradients: for steps that are not part of the training.
  void without_trace(const std::function<void()>& work);

  const models::TrainingTask& task() const { return task_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  std::vector<at::Tensor> buffers() const { return task_.module->buffers(); }

  // The peak of a step, counted by the allocator: externals and everything that was handed out.
  virtual int64_t counted_peak_bytes(const Batch& batch);

 protected:
  virtual at::Tensor forward_and_backward(const Batch& batch) = 0;

 private:
  models::TrainingTask task_;
  std::vector<at::Tensor> parameters_;
  torch::optim::SGD optimizer_;
};

std::unique_ptr<Trainee> plain_trainee(models::TrainingTask task);
// Every block of the model under remat::checkpoint.
std::unique_ptr<Trainee> checkpointed_trainee(models::TrainingTask task);

// A recorded step in the order of a plan, in an arena.
class PlannedTrainee final : public Trainee {
 public:
  // `graph` is the recording's, with times.
  PlannedTrainee(models::TrainingTask task, Recording recording, Graph graph);

  // Must be called before a step. The plan must be feasible and placed.
  void follow(const Plan& plan);

  const Graph& graph() const { return graph_; }
  const Schedule& schedule() const { return schedule_; }
  const StepCounts& counts() const { return execution_->counts(); }
  int64_t arena_bytes() const { return placement_.arena_bytes; }

  // From now on freed blocks are overwritten, so that a read after it shows.
  void poison_frees();

  int64_t counted_peak_bytes(const Batch& batch) override;

 protected:
  at::Tensor forward_and_backward(const Batch& batch) override;

 private:
  Recording recording_;
  Graph graph_;
  Schedule schedule_;
  Placement placement_;
  std::shared_ptr<detail::Arena> arena_;
  std::unique_ptr<Execution> execution_;
};

}  // namespace remat
