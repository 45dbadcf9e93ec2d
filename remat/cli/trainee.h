// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/libtorch/tape.h"
#include "remat/models/zoo.h"

namespace torch::optim {
class Optimizer;
}

namespace remat {

// A model of its own, its optimizer, and one way to run the training step: plain, eagerly
// checkpointed, or by a plan. From the same seed, all of them start alike.
class Trainee {
 public:
  // `optimizer`: its name (cli/optimizer.h), where the update is a part of the step; "none": it is
  // not, and SGD with momentum updates in between.
  Trainee(models::TrainingTask task, const std::string& optimizer);
  virtual ~Trainee() = default;

  // The update outside: drops the gradients, runs forward and backward, and leaves gradients in the
  // parameters. Inside: updates too, and leaves no gradients. Returns the loss, without history.
  at::Tensor step(const Batch& batch);
  // After a step, where the update is outside.
  void update();

  // Runs `work`, then gives the default generator the state that it had before: for steps that are
  // not counted. Where the update is outside they leave no other trace either: buffers as they
  // were, no gradients.
  void without_trace(const std::function<void()>& work);
  // Steps, the same number for all methods, after which one is like all later ones. Once.
  void warm_up(const Batch& batch);

  const models::TrainingTask& task() const { return task_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  std::vector<at::Tensor> buffers() const { return task_.module->buffers(); }
  bool updates_inside() const { return updates_inside_; }
  // What is kept between steps, where the update is inside.
  std::vector<at::Tensor> optimizer_state() const;

  // The peak of a step, counted by the allocator: externals and everything that was handed out.
  virtual int64_t counted_peak_bytes(const Batch& batch);

 protected:
  virtual at::Tensor run(const Batch& batch) = 0;
  // After the last step of a warm-up.
  virtual void warmed_up() {}
  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  models::TrainingTask task_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  bool updates_inside_;
  bool warm_ = false;
};

std::unique_ptr<Trainee> plain_trainee(models::TrainingTask task,
                                       const std::string& optimizer = "none");
// Every block of the model under remat::checkpoint.
std::unique_ptr<Trainee> checkpointed_trainee(models::TrainingTask task,
                                              const std::string& optimizer = "none");

}  // namespace remat
