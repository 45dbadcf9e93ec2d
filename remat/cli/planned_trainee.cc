// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/planned_trainee.h"

#include <torch/torch.h>

#include <chrono>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "remat/libtorch/arena.h"
#include "remat/libtorch/saved_plan.h"

namespace remat {
namespace {

class ReplayedTrainee final : public PlannedTrainee {
 public:
  ReplayedTrainee(models::TrainingTask task, Recording recording, Graph graph,
                  std::shared_ptr<detail::Channel> channel)
      : PlannedTrainee(std::move(task), "none"),
        recording_(std::move(recording)),
        graph_(std::move(graph)),
        channel_(std::move(channel)) {}

  void follow(const Plan& plan) override {
    set(rewrite(graph_, plan.order), *plan.placement);
    arena_ = make_arena(arena_bytes());
    start(/*poison=*/false);
  }

  StepCounts counts() const override { return execution_->counts(); }
  std::vector<int64_t> measured_bytes() const override { return execution_->measured_bytes(); }

  std::vector<TraceCall> traced_step(const Batch& batch) override {
    timer_.start();
    step(batch);
    return calls_with_times(graph_, timer_.stop());
  }

  int poison_frees() override {
    start(/*poison=*/true);
    return 0;
  }

 protected:
  at::Tensor run(const Batch& batch) override {
    StepResult result = execution_->run(batch);
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (result.gradients[i].defined()) {
        at::Tensor(parameters()[i]).mutable_grad() = result.gradients[i];
      }
    }
    return result.loss;
  }

 private:
  void start(bool poison) {
    ExecuteOptions options{.poison = poison, .after_op = [this] { timer_.call_ended(); }, .channel = channel_};
    execution_ = std::make_unique<Execution>(recording_, schedule(), placement(), arena_, options);
  }

  Recording recording_;
  Graph graph_;
  std::shared_ptr<detail::Channel> channel_;
  CallTimer timer_;
  std::shared_ptr<detail::Arena> arena_;
  std::unique_ptr<Execution> execution_;
};

}  // namespace

int64_t CallTimer::now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void PlannedTrainee::set(Schedule schedule, Placement placement) {
  schedule_ = std::move(schedule);
  placement_ = std::move(placement);
}

int64_t PlannedTrainee::counted_peak_bytes(const Batch& batch) {
  step(batch);
  return counts().peak_bytes;
}

std::vector<TraceCall> PlannedTrainee::calls_with_times(
    const Graph& graph, const std::vector<int64_t>& times_ns) const {
  std::vector<TraceCall> calls = planned_calls(graph, schedule_);
  const std::vector<int64_t> bytes = measured_bytes();
  if (calls.size() != times_ns.size() || calls.size() != bytes.size()) {
    throw Error(
        detail::concat("a step of ", calls.size(), " calls was timed at ", times_ns.size()));
  }
  int64_t start_ns = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].start_ns = start_ns;
    calls[i].time_ns = times_ns[i];
    calls[i].measured_bytes = bytes[i];
    start_ns += times_ns[i];
  }
  return calls;
}

std::unique_ptr<PlannedTrainee> replayed_trainee(models::TrainingTask task, Recording recording, Graph graph,
                                                 std::shared_ptr<detail::Channel> channel) {
  return std::make_unique<ReplayedTrainee>(std::move(task), std::move(recording), std::move(graph),
                                           std::move(channel));
}

SteppedTrainee::SteppedTrainee(models::TrainingTask task, const ModelOptions& options, Offloading offloading,
                               Graph graph, SavedCourse course)
    : PlannedTrainee(std::move(task), options.optimizer),
      pack_(options.moves.pack),
      offloading_(std::move(offloading)),
      graph_(std::move(graph)),
      course_(std::move(course)) {}

SteppedTrainee::SteppedTrainee(models::TrainingTask task, const ModelOptions& options, Offloading offloading,
                               PlanFile file)
    : PlannedTrainee(std::move(task), options.optimizer),
      pack_(options.moves.pack),
      offloading_(std::move(offloading)),
      file_(std::move(file)) {
  start(/*poison=*/false);
}

void SteppedTrainee::follow(const Plan& plan) {
  SavedCourse course = course_;
  course.graph = graph_;
  course.plan = plan;
  course.schedule = rewrite(graph_, plan.order);
  set(course.schedule, *plan.placement);
  file_ = plan_file_of({std::move(course)});
  start(/*poison=*/false);
}

// The budget is the plan's own: a step that is recorded inside of one would move values to a file.
void SteppedTrainee::start(bool poison) {
  step_.reset();
  TrainingStepOptions options = step_with_update([this] { optimizer().step(); }, pack_, offloading_, nullptr);
  options.saved_plan = file_;
  options.execute.poison = poison;
  options.host.poll = [this] { timer_.call_begins(); };
  options.execute.after_op = [this] { timer_.call_ended(); };
  step_ = std::make_unique<TrainingStep>(task().loss, parameters(), buffers(), std::move(options));
}

void SteppedTrainee::warmed_up() {
  const StepReport report = step_->report();
  if (!report.from_saved_plan) throw PlanRefused(report.saved_plan_refused);
  set(step_->schedule(), *step_->plan().placement);
}

StepCounts SteppedTrainee::counts() const { return step_->report().counts; }
std::vector<int64_t> SteppedTrainee::measured_bytes() const {
  return step_->report().measured_bytes;
}

std::vector<TraceCall> SteppedTrainee::traced_step(const Batch& batch) {
  timer_.start();
  step(batch);
  return calls_with_times(graph(), timer_.stop());
}

// A new step records its first call.
int SteppedTrainee::poison_frees() {
  start(/*poison=*/true);
  return 1;
}

}  // namespace remat
