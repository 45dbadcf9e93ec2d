// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "remat/libtorch/capture.h"
#include "remat/libtorch/step.h"

namespace remat {

using TrainingStepOptions = StepOptions;

// A loss function and its backward inside a memory budget: the same bits, never more bytes. A thin
// layer over Step, for those who keep the optimizer outside:
//
//   remat::TrainingStep step(
//       [&](const remat::Batch& batch) { return F::cross_entropy(model->forward(batch[0]), batch[1]); },
//       model->parameters(), model->buffers(), {.budget_bytes = 2 * remat::GiB});
//   optimizer.zero_grad();
//   at::Tensor loss = step({x, y});  // fills p.grad(), as loss.backward() would
//   optimizer.step();
//
// The first call needs the memory of the plain step; so does the first of every other course (see
// Step): other batch shapes, gradients that exist before the step (they are added to), train() and
// eval(), another number of threads. Gradients are ordinary tensors; dropping them between steps
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

 private:
  std::unique_ptr<Step::Implementation> step_;
};

}  // namespace remat
