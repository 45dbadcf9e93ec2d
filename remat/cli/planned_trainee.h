// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "remat/cli/measured_step.h"
#include "remat/cli/trainee.h"
#include "remat/core/error.h"
#include "remat/core/plan.h"
#include "remat/core/plan_file.h"
#include "remat/libtorch/execute.h"
#include "remat/report/trace_json.h"

namespace remat {

// Times the calls of a step one by one.
class CallTimer {
 public:
  void start() {
    wanted_ = true;
    times_ns_.clear();
    call_begins();
  }
  void call_begins() { began_ns_ = now_ns(); }
  void call_ended() {
    if (!wanted_) return;
    const int64_t now = now_ns();
    times_ns_.push_back(now - began_ns_);
    began_ns_ = now;  // where nobody says when the next call begins
  }
  std::vector<int64_t> stop() {
    wanted_ = false;
    return std::move(times_ns_);
  }

 private:
  static int64_t now_ns();

  bool wanted_ = false;
  int64_t began_ns_ = 0;
  std::vector<int64_t> times_ns_;
};

// A training step in the order of a plan, in an arena.
class PlannedTrainee : public Trainee {
 public:
  using Trainee::Trainee;

  // Before a step: by this plan from now on. It must be feasible and placed, and of the graph that
  // the trainee was made for.
  virtual void follow(const Plan& plan) = 0;

  const Schedule& schedule() const { return schedule_; }
  const Placement& placement() const { return placement_; }
  int64_t arena_bytes() const { return placement_.arena_bytes; }

  // Of the last step.
  virtual StepCounts counts() const = 0;
  virtual std::vector<int64_t> measured_bytes() const = 0;

  // A step whose calls are timed one by one. They stand one right after the other: the time between
  // two kernels is not in it.
  virtual std::vector<TraceCall> traced_step(const Batch& batch) = 0;

  // From now on freed blocks are overwritten, so that a read after it shows. So many steps are run
  // before one is by the plan again.
  virtual int poison_frees() = 0;

  int64_t counted_peak_bytes(const Batch& batch) override;

 protected:
  void set(Schedule schedule, Placement placement);
  std::vector<TraceCall> calls_with_times(const Graph& graph,
                                          const std::vector<int64_t>& times_ns) const;

 private:
  Schedule schedule_;
  Placement placement_;
};

// Forward and backward by a recording of the task's step; `graph` is the recording's, with times.
// `channel`: for plans that offload.
std::unique_ptr<PlannedTrainee> replayed_trainee(models::TrainingTask task, Recording recording, Graph graph,
                                                 std::shared_ptr<detail::Channel> channel = nullptr);

// A saved plan is for something else; the text says what.
class PlanRefused : public Error {
 public:
  using Error::Error;
};

// The update inside, by a TrainingStep. Its warm-up throws PlanRefused.
class SteppedTrainee final : public PlannedTrainee {
 public:
  // `course`, of whose graph plans are made, as a MeasuredStep has it.
  SteppedTrainee(models::TrainingTask task, const ModelOptions& options, Offloading offloading, Graph graph,
                 SavedCourse course);
  // By a plan of a file, which must be one for this step. What it is about is known after the
  // warm-up.
  SteppedTrainee(models::TrainingTask task, const ModelOptions& options, Offloading offloading, PlanFile file);

  void follow(const Plan& plan) override;
  StepCounts counts() const override;
  std::vector<int64_t> measured_bytes() const override;
  std::vector<TraceCall> traced_step(const Batch& batch) override;
  int poison_frees() override;

  // Of the planned step, after the warm-up.
  const Graph& graph() const { return step_->graph(); }
  const Plan& plan() const { return step_->plan(); }

 protected:
  at::Tensor run(const Batch& batch) override { return (*step_)(batch); }
  void warmed_up() override;

 private:
  void start(bool poison);

  bool pack_;
  Offloading offloading_;
  Graph graph_;
  SavedCourse course_;
  PlanFile file_;
  CallTimer timer_;
  std::unique_ptr<TrainingStep> step_;
};

}  // namespace remat
