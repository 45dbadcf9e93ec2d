// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/plan.h"
#include "remat/core/plan_file.h"
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

// How far the first call of a course is.
struct StepProgress {
  enum class Stage : uint8_t { record, measure, plan, compare };
  Stage stage = Stage::record;
  int64_t ops_done = 0;
  int64_t ops_total = 0;      // of the step; 0 while nobody knows: it is recorded for the first time
  int64_t spilled_bytes = 0;  // of its values, now in a file
};

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
  // A step that takes so long or longer is planned quickly in its first call, runs under that plan and is
  // timed meanwhile; a better plan is made on a thread of its own and takes over between two calls.
  double background_plan_seconds = 1.0;
  // Where values of the first call go that do not fit into the budget, in a file without a name. Empty:
  // $TMPDIR, or /var/tmp. Not a folder in memory (tmpfs).
  std::string spill_folder = {};
  // Values may be kept in fewer bytes while they are idle, where the same bits come back (packed_values.h).
  bool pack = true;
  // Values may lie in a file without a name in this folder while they are idle, written and read beside the
  // kernels. Empty: they may not. A folder in memory (tmpfs) is refused: it would not help.
  std::string offload_folder = {};
  // Looks at the memory that the machine or the cgroup has left before every call. Where it is short the
  // next steps use less, as far as there are plans; they get the budget back later. `notice` says what it costs.
  // Of a course that needs more than that the plan that needs least is taken: nothing is thrown.
  bool watch_memory = false;
  uint64_t seed = 1;
  // A plan of an earlier process (load_plan in saved_plan.h). A course that it holds a plan for, which fits
  // the budget, runs by that from its second call on, without being measured, planned and compared.
  // Others are planned as without it, and `notice` is told why.
  std::optional<PlanFile> saved_plan = {};
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
  // Called often in a call that is recorded: must be quick.
  std::function<void(const StepProgress&)> progress = {};
  ExecuteOptions execute = {};
  Host host = {};
  // TrainingStep only: called after backward, as a part of the step: optimizer.step(), with whatever
  // comes before it (clipping). See there.
  std::function<void()> update = {};
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
  // The same by role: parameters, buffers (with constants), inputs, gradients that were there before the
  // step, optimizer state; as `temporary` the copies that a failed step is put back with.
  std::array<int64_t, kRoleCount> external_bytes_by_role{};
  int64_t keep_all_time_ns = 0;      // sums of the measured times of ops
  int64_t time_ns = 0;               // that the plan should take, waiting for transfers included
  std::string channel;               // what values are offloaded to; empty: nothing can be
  int64_t channel_bytes = 0;         // that the plan takes of it
  StepCounts counts;                 // of the last step
  std::string strategy;              // that made the plan
  bool from_saved_plan = false;    // StepOptions::saved_plan holds it; ...
  std::string saved_plan_refused;  // ... or why it does not
  bool from_other_size = false;    // the course was first run under the plan of another size of the batch
  int improved_plans = 0;          // better plans of the course that took over between two calls
  int64_t spilled_bytes = 0;  // moved to a file while the course was recorded
  double capture_seconds = 0;
  double measure_seconds = 0;
  double plan_seconds = 0;
  int variants = 0;         // courses of the program that are known
  int64_t planned_steps = 0;  // calls that ran under a plan, ...
  int64_t plain_steps = 0;    // ... and plainly: first of their kind, or too different from each other
  std::vector<Moment> timeline;  // one for each step of the schedule
  // Of the last step, counted by the allocator: one for each run and recompute of the schedule. Empty if
  // another course has taken over the arena since.
  std::vector<int64_t> measured_bytes;
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

  // Of the planned variant that ran last. Throws Error before the first. Where what its plan packed or offloaded
  // has failed and no other plan fits, plan() and schedule() throw Error as well, and what a report says of the
  // plan (predicted bytes, the arena, the time, the timeline) is 0 or empty.
  StepReport report() const;
  const Graph& graph() const;
  const Plan& plan() const;
  const Schedule& schedule() const;

  // Another budget from the next call on, between two calls. Plans again for every course that is known, or takes a
  // plan that was made before; nothing is recorded again. Memory beyond it goes back to the system at once. Throws
  // Infeasible if there is a course that no plan fits: then the budget is the one from before, for all of them. What
  // watch_memory had taken away is given back.
  void set_budget_bytes(int64_t bytes);

  // Writes the plans of all courses that are known, for StepOptions::saved_plan of a later process. Throws
  // Error before the first, or where the file cannot be written.
  void save_plan(const std::string& path) const;
  PlanFile plan_file() const;  // what it writes

  // The op at which a planned call failed last, with layer and line; empty if the last call did not.
  const std::string& failed_op() const;
  // Whether the last call threw and was undone: interrupted, or the disk was full, or before anything had run. Tensors
  // that were there before it are as they were; what the function did besides (a count of steps) has happened.
  bool undone() const;

 private:
  friend class TrainingStep;
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace remat
