// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include "remat/core/plan.h"
#include "remat/core/schedule.h"
#include "remat/libtorch/step.h"

namespace remat::detail {

// A plan of a step for one budget, ready to be run.
struct StepPlan {
  Plan plan;  // with addresses
  Schedule schedule;
  int64_t budget_bytes = 0;
  double seconds = 0;  // that planning took
};

// Plans for so long. Throws Infeasible if nothing fits, and what options.host.poll throws.
StepPlan plan_step(const Graph& graph, const StepOptions& options, int64_t budget_bytes,
                   double plan_seconds);

// The plan of another size of the same program, for this graph: the same ops in the same order, with addresses
// for their sizes here. None if the graphs are not of one program, or if it does not fit the budget.
std::optional<StepPlan> plan_of_other_size(const Graph& graph, const Graph& other, const StepPlan& planned,
                                           int64_t budget_bytes);

// Plans on a thread of its own, while steps run under an earlier plan.
class BackgroundPlan {
 public:
  BackgroundPlan(Graph graph, const StepOptions& options, int64_t budget_bytes);
  // Ends the search and waits for it.
  ~BackgroundPlan();
  BackgroundPlan(const BackgroundPlan&) = delete;
  BackgroundPlan& operator=(const BackgroundPlan&) = delete;

  bool done() const { return done_; }
  void wait();
  // Once done. None if nothing was found that fits and passes verify().
  std::optional<StepPlan> take();
  const Graph& graph() const { return graph_; }

 private:
  void run(const PlanOptions& options);

  const Graph graph_;
  int process_;  // the one that has the thread: a fork has not
  std::atomic<bool> stop_ = false;
  std::atomic<bool> done_ = false;
  std::optional<StepPlan> made_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace remat::detail
