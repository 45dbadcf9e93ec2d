// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/core/plan.h"
#include "remat/core/schedule.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/libtorch/capture.h"
#include "remat/libtorch/execute.h"

namespace remat {

struct TrainingStepOptions {
  // Bounds everything the step needs while it runs: parameters, buffers, the batch, gradients, and
  // the arena with whatever place() loses in it.
  int64_t budget_bytes = kNoBudget;
  std::string strategy = "auto";
  double plan_seconds = 5.0;  // more than plan()'s own default: it is done once for a whole training
  double measure_seconds = 2.0;
  uint64_t seed = 1;
  // Things worth knowing that are no errors: the step is captured again, and why; requests for
  // memory that were not foreseen.
  std::function<void(const std::string&)> notice = {};
  ExecuteOptions execute = {};
};

struct StepReport {
  int64_t budget_bytes = 0;
  int64_t keep_all_peak_bytes = 0;   // of the graph: everything kept, no reuse
  int64_t eager_peak_bytes = 0;      // counted while plain LibTorch ran the step, for capture
  int64_t floor_bytes = 0;           // the least that a plan is known to reach
  int64_t predicted_peak_bytes = 0;  // of the plan: what is live
  int64_t measured_peak_bytes = 0;   // of the last step
  int64_t peak_bytes = 0;            // reserved: externals and the arena
  int64_t arena_bytes = 0;
  int64_t external_bytes = 0;
  int64_t keep_all_time_ns = 0;      // sums of the measured times of ops
  int64_t time_ns = 0;
  StepCounts counts;                 // of the last step
  std::string strategy;              // that made the plan
  double capture_seconds = 0;
  double measure_seconds = 0;
  double plan_seconds = 0;
  std::vector<Moment> timeline;      // one for each step of the schedule
};

// A training step inside a memory budget: the same bits, never more bytes.
//
//   remat::TrainingStep step(
//       [&](const remat::Batch& batch) { return F::cross_entropy(model->forward(batch[0]), batch[1]); },
//       model->parameters(), model->buffers(), {.budget_bytes = 2 * remat::GiB});
//   optimizer.zero_grad();
//   at::Tensor loss = step({x, y});  // fills p.grad(), as loss.backward() would
//   optimizer.step();
//
// The first call captures, measures and plans; it needs the memory of the plain step. So does the
// first call after something that a plan depends on has changed: which gradients exist before the
// step (they are added to), how parameters and gradients lie in memory, which parameters require a
// gradient, autocast, and the number of threads. Gradients are ordinary tensors; dropping them
// between steps (zero_grad's default) saves a copy and their memory.
//
// The loss function is called by capture only. What it does besides ATen ops is not seen, and what
// decides its course (eval() instead of train(), a tensor it holds that is replaced by another) must
// stay as it was: make a new TrainingStep where it does not.
//
// Throws Error where capture does, where the budget is below the floor, and where a batch has other
// shapes than the first. A step that fails leaves parameters, buffers and generators as they were.
// One thread at a time; different steps may run on different threads.
class TrainingStep {
 public:
  TrainingStep(LossFunction loss_of, std::vector<at::Tensor> parameters,
               std::vector<at::Tensor> buffers = {}, TrainingStepOptions options = {});
  ~TrainingStep();
  TrainingStep(TrainingStep&&) noexcept;
  TrainingStep& operator=(TrainingStep&&) noexcept;

  // The loss, without history.
  at::Tensor operator()(const Batch& batch);

  // Of the step that ran last. Throws Error before the first.
  StepReport report() const;
  const Graph& graph() const;
  const Plan& plan() const;
  const Schedule& schedule() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace remat
