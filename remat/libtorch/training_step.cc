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

// They were applied: nobody needs their bytes any more.
void drop_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    parameter.mutable_grad().reset();
  }
}

}  // namespace

TrainingStep::TrainingStep(LossFunction loss_of, std::vector<at::Tensor> parameters,
                           std::vector<at::Tensor> buffers, TrainingStepOptions options)
    : step_(std::make_unique<Step::Implementation>(
          [loss_of = std::move(loss_of), update = std::move(options.update),
           parameters](const Batch& batch) {
            const at::Tensor loss = [&] {
              const at::AutoGradMode with_gradients(true);
              at::Tensor made = loss_of(batch);
              check_loss(made);
              torch::autograd::backward({made}, {});
              return made.detach();
            }();
            if (update) {
              update();
              drop_gradients(parameters);
            }
            return Batch{loss};
          },
          known_tensors(parameters, buffers), std::move(options))) {}
TrainingStep::~TrainingStep() = default;
TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep& TrainingStep::operator=(TrainingStep&&) noexcept = default;

at::Tensor TrainingStep::operator()(const Batch& batch) { return step_->run(batch).front(); }

StepReport TrainingStep::report() const { return step_->report(); }
const Graph& TrainingStep::graph() const { return step_->last().graph; }
const Plan& TrainingStep::plan() const { return step_->planned().plan(); }
const Schedule& TrainingStep::schedule() const { return step_->planned().schedule(); }
void TrainingStep::set_budget_bytes(int64_t bytes) { step_->set_budget_bytes(bytes); }
void TrainingStep::save_plan(const std::string& path) const { step_->save_plan(path); }
PlanFile TrainingStep::plan_file() const { return step_->plan_file(); }
const std::string& TrainingStep::failed_op() const { return step_->failed_op(); }
bool TrainingStep::undone() const { return step_->undone(); }

}  // namespace remat
