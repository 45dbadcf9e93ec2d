// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/fit_step.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "remat/core/error.h"
#include "remat/libtorch/device.h"

namespace remat {
namespace {

using detail::concat;

// Long steps are timed once: their times vary little.
constexpr size_t kTimedSteps = 3;
constexpr int64_t kTimedNs = 2'000'000'000;
constexpr int kMostCalls = 6;  // until a step runs under a plan

int64_t median_step_ns(const std::function<void()>& call) {
  std::vector<int64_t> times;
  for (int64_t spent = 0; times.empty() || (times.size() < kTimedSteps && spent < kTimedNs);) {
    const int64_t start = detail::cpu_device().now_ns();
    call();
    times.push_back(detail::cpu_device().now_ns() - start);
    spent += times.back();
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

bool is_planned(const Step& step) {
  try {
    step.plan();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A step of one size inside a budget, with the graph of the course that it took last. The budget goes
// through budget_of: it is asked once for each course, and sees the graph of one that does not fit too.
class Trial {
 public:
  Trial(const SizedStep& made, int64_t size, int64_t budget_bytes, StepOptions options)
      : batch_(made.batch), size_(size) {
    options.budget_of = [this, budget_bytes](const Graph& course) {
      graph = course;
      ++courses_;
      return budget_bytes;
    };
    step_ = std::make_unique<Step>(made.function, std::move(options));
  }

  void call() { (*step_)(batch_); }

  // Until a call has run under a plan: the first courses may be those of a start, before there are
  // gradients or an optimizer's state. Throws Infeasible where no plan fits.
  void call_until_planned() {
    for (int calls = 0; calls < kMostCalls; ++calls) {
      const int courses = courses_;
      const bool planned = is_planned(*step_);
      call();
      if (planned && courses == courses_) return;
    }
    throw Error(concat("[fit] the step of size ", size_, " does not come to run under a plan in ",
                       kMostCalls, " calls; expected one that takes the same course at every call"));
  }

  StepReport report() const { return step_->report(); }

  Graph graph = {};

 private:
  const Batch& batch_;
  int64_t size_;
  int courses_ = 0;
  std::unique_ptr<Step> step_;
};

// The step as Step records it, so that the graphs of all sizes are made alike; then as it is.
PlainRun run_plainly(const SizedStep& made, int64_t size, StepOptions options) {
  PlainRun run;
  {
    options.strategy = "keep_all";  // only the graph is wanted
    Trial trial(made, size, kNoBudget, std::move(options));
    trial.call_until_planned();
    run.peak_bytes = trial.report().eager_peak_bytes;
    run.graph = std::move(trial.graph);
  }
  detail::cpu_device().trim();
  run.step_ns = median_step_ns([&] { made.function(made.batch); });
  return run;
}

PlannedRun run_planned(const SizedStep& made, int64_t size, int64_t budget_bytes,
                       const StepOptions& options) {
  PlannedRun run;
  Trial trial(made, size, budget_bytes, options);
  try {
    trial.call_until_planned();
    run.step_ns = median_step_ns([&] { trial.call(); });
    const StepReport report = trial.report();
    run.feasible = true;
    run.predicted_peak_bytes = report.predicted_peak_bytes;
    run.measured_peak_bytes = report.measured_peak_bytes;
    run.reserved_bytes = report.peak_bytes;
    run.plan_time_ns = report.time_ns;
  } catch (const Infeasible&) {
    run = {};
  }
  run.graph = std::move(trial.graph);
  return run;
}

}  // namespace

Fit fit(const MakeStep& make, const FitOptions& options, const StepOptions& step_options) {
  const SizedProgram program{
      .run_plainly = [&](int64_t size) { return run_plainly(make(size), size, step_options); },
      .run_planned =
          [&](int64_t size, int64_t budget_bytes) {
            return run_planned(make(size), size, budget_bytes, step_options);
          }};
  return fit(program, options);
}

}  // namespace remat
