// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/training_step.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/core/error.h"
#include "remat/libtorch/step_implementation.h"

namespace remat {
namespace {

using detail::concat;

void check_loss(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1 || !loss.requires_grad()) {
    throw Error(concat("[step] the loss function returned ",
                       !loss.defined() ? "an undefined tensor"
                       : loss.numel() != 1
                           ? concat("a tensor of ", loss.numel(), " elements")
                           : "a tensor that does not depend on any parameter",
                       "; expected one number to differentiate"));
  }
}

std::vector<detail::KnownTensor> known_tensors(const std::vector<at::Tensor>& parameters,
                                               const std::vector<at::Tensor>& buffers) {
  std::vector<detail::KnownTensor> known;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].defined() || !parameters[i].is_leaf()) {
      throw Error(concat("[step] parameter ", i,
                         " is undefined or the result of an op; expected a leaf tensor"));
    }
    known.push_back({parameters[i], concat("param", i), Role::param});
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].defined()) {
      known.push_back({buffers[i], concat("buffer", i), Role::buffer});
    }
  }
  return known;
}

}  // namespace

TrainingStep::TrainingStep(LossFunction loss_of, std::vector<at::Tensor> parameters,
                           std::vector<at::Tensor> buffers, TrainingStepOptions options)
    : step_(std::make_unique<Step::Implementation>(
          [loss_of = std::move(loss_of)](const Batch& batch) {
            const at::AutoGradMode with_gradients(true);
            const at::Tensor loss = loss_of(batch);
            check_loss(loss);
            torch::autograd::backward({loss}, {});
            return Batch{loss.detach()};
          },
          known_tensors(parameters, buffers), std::move(options))) {}
TrainingStep::~TrainingStep() = default;
TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep& TrainingStep::operator=(TrainingStep&&) noexcept = default;

at::Tensor TrainingStep::operator()(const Batch& batch) { return step_->run(batch).front(); }

StepReport TrainingStep::report() const { return step_->report(); }
const Graph& TrainingStep::graph() const { return step_->last().graph; }
const Plan& TrainingStep::plan() const { return step_->last().plan; }
const Schedule& TrainingStep::schedule() const { return step_->last().schedule; }

}  // namespace remat
