// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/plan.h"
#include "remat/core/schedule.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/libtorch/budget.h"
#include "remat/libtorch/execute.h"
#include "remat/libtorch/host.h"
#include "remat/libtorch/tape.h"

namespace remat {

// For StepOptions::follow.
inline constexpr int64_t kEveryStep = std::numeric_limits<int64_t>::max();

struct StepOptions {
  // Bounds everything the step needs while it runs: parameters, buffers, the batch, gradients, and
  // the arena with whatever place() loses in it.
  int64_t budget_bytes = kNoBudget;
  // Says the budget where it is not known before the step has been recorded (budget.h has a
  // share of what the plain step needs, and what is left of the memory). Asked once for each course;
  // budget_bytes is then not looked at.
  std::function<int64_t(const Graph&)> budget_of = {};
  std::string strategy = "auto";
  double plan_seconds = 5.0;  // more than plan()'s own default: it is done once for a whole training
  double measure_seconds = 2.0;
  uint64_t seed = 1;
  // So many calls of the step follow the function. Afterwards the first planned course is repeated
  // without calling it, so that only the bytes of the batch and of tensors that live between steps
  // change: for those who know that their function is pure. 0: as soon as it has been followed once.
  int64_t follow = kEveryStep;
  // Courses of the program that are kept, each with its plan. Beyond it the one that was not used
  // for longest is forgotten.
  int max_variants = 8;
  // Things worth knowing that are no errors: the step took another course, and where it left the
  // one that was known; requests for memory that were not foreseen.
  std::function<void(const std::string&)> notice = {};
  ExecuteOptions execute = {};
  Host host = {};
};

// No plan fits the budget.
class Infeasible : public Error {
 public:
  Infeasible(const std::string& message, int64_t budget, int64_t floor)
      : Error(message), budget_bytes(budget), floor_bytes(floor) {}
  int64_t budget_bytes;
  int64_t floor_bytes;  // the least that a plan is known to need
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
  int variants = 0;         // courses of the program that are known
  int64_t planned_steps = 0;  // calls that ran under a plan, ...
  int64_t plain_steps = 0;    // ... and plainly: first of their kind, or too different from each other
  std::vector<Moment> timeline;  // one for each step of the schedule
};

// Takes a batch, does a whole training step (zero_grad, losses, backward, clipping, the optimizer),
// returns any tensors.
using StepFunction = std::function<Batch(const Batch&)>;

// Any function of ATen calls inside a memory budget: the same bits, never more bytes.
//
//   remat::Step step([&](const remat::Batch& batch) {
//     optimizer.zero_grad();
//     at::Tensor loss = F::cross_entropy(model->forward(batch[0]), batch[1]);
//     loss.backward();
//     optimizer.step();
//     return remat::Batch{loss};
//   }, {.budget_bytes = 2 * remat::GiB});
//   remat::Batch out = step({x, y});
//
// Every call calls the function once, as a plain loop would: its counters, logs, branches and host
// randomness happen. The first call runs it plainly and records every op; then it is measured and
// planned, and the planned step is compared with the plain one, bit for bit. From then on the
// function is *followed*: its ops are matched against the recording and answered with tensors that
// have no bytes yet; where it reads one, or returns, the schedule runs. Where it does something that
// was not recorded, what came before is run, so that it can go on plainly, and the new course is
// recorded as another variant. docs/training_step.md has the details.
//
// Parameters, buffers, gradients and optimizer state are found, not passed: what the function uses
// and did not make is there before the step; what is still held when it returns stays.
//
// Throws Infeasible where no plan fits the budget, and Error where the step uses something that cannot be followed
// (named in the message), or where the planned step's bits differ from the plain one's. What the
// function throws comes out as it is; tensors are then as the plain loop would have left them, but for
// Interrupted, which undoes the step.
// One thread at a time; different steps may run on different threads.
class Step {
 public:
  explicit Step(StepFunction function, StepOptions options = {});
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  Batch operator()(const Batch& batch);

  // Of the planned variant that ran last. Throws Error before the first.
  StepReport report() const;
  const Graph& graph() const;
  const Plan& plan() const;
  const Schedule& schedule() const;

  // The op at which a planned call failed last, with layer and line; empty if the last call did not.
  const std::string& failed_op() const;

 private:
  friend class TrainingStep;
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace remat
