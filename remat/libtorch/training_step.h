// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "remat/libtorch/capture.h"
#include "remat/libtorch/step.h"

namespace remat {

using TrainingStepOptions = StepOptions;

// A loss function and its backward inside a memory budget: the same bits, never more bytes. A thin
// layer over Step. With the optimizer outside:
//
//   remat::TrainingStep step(
//       [&](const remat::Batch& batch) { return F::cross_entropy(model->forward(batch[0]), batch[1]); },
//       model->parameters(), model->buffers(), {.budget_bytes = 2 * remat::GiB});
//   optimizer.zero_grad();
//   at::Tensor loss = step({x, y});  // fills p.grad(), as loss.backward() would
//   optimizer.step();
//
// With the update inside a gradient dies when it is applied, so that less memory will do:
//
//   remat::TrainingStep step(loss_of, model->parameters(), model->buffers(),
//       {.budget_bytes = 1 * remat::GiB, .update = [&] { optimizer.step(); }});
//   at::Tensor loss = step({x, y});  // afterwards p.grad() is undefined
//
// Clipping by value, and whatever else looks at one gradient at a time, belongs into `update` and costs
// nothing; clipping by norm needs all of them before the first is applied. What `update` throws comes
// out, with the gradients as backward left them.
//
// The first call records the plain step; so does the first of every other course (see Step): other batch
// shapes, gradients that exist before the step (they are added to), train() and eval(), another number of
// threads. Inside a budget, values that do not fit into it lie in a file meanwhile. Gradients are ordinary tensors; dropping them between steps
// (zero_grad's default) saves a copy and their memory. Parameters and buffers are named in reports
// as they are passed here; others are found.
//
// Throws Error where Step does, and where the loss is not one number that depends on a parameter.
class TrainingStep {
 public:
  TrainingStep(LossFunction loss_of, std::vector<at::Tensor> parameters,
               std::vector<at::Tensor> buffers = {}, TrainingStepOptions options = {});
  ~TrainingStep();
  TrainingStep(TrainingStep&&) noexcept;
  TrainingStep& operator=(TrainingStep&&) noexcept;

  // The loss, without history.
  at::Tensor operator()(const Batch& batch);

  // Of the planned variant that ran last. Throws Error before the first.
  StepReport report() const;
  const Graph& graph() const;
  const Plan& plan() const;
  const Schedule& schedule() const;

  // As Step's.
  void set_budget_bytes(int64_t bytes);
  void save_plan(const std::string& path) const;
  PlanFile plan_file() const;
  const std::string& failed_op() const;
  bool undone() const;

 private:
  std::unique_ptr<Step::Implementation> step_;
};

}  // namespace remat
