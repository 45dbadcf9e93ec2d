// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remat/cli/model_source.h"
#include "remat/cli/planned_trainee.h"
#include "remat/cli/progress.h"
#include "remat/core/plan.h"
#include "remat/report/plan_report.h"
#include "remat/report/run_report.h"
#include "remat/report/trace_json.h"

namespace remat {

inline constexpr const char* kCheckpoint = "checkpoint";  // eager checkpointing, block by block

struct RunOptions {
  ModelOptions model;
  std::string budget;  // empty: that of the saved plan
  std::string strategy = "auto";
  std::string plan;                  // a file; empty: plans are made
  std::vector<std::string> compare;  // strategies, and kCheckpoint
  int steps = 5;
  int64_t seed = 1;
  double time_limit_seconds = TrainingStepOptions{}.plan_seconds;
  bool verify = false;
};

// Trains a model inside a budget beside plain LibTorch, and compares bytes, time and bits. What its
// functions throw are Errors, and what LibTorch throws.
class Run {
 public:
  explicit Run(const RunOptions& options) : options_(options) {}

  // False if the budget is too small for what was asked for: the report says why, and plan_details() the
  // best that was found.
  bool prepare();
  void train();
  RunReport report() const;

  // Of what was asked for.
  // One more step, op by op. Needs a plan that fits.
  TracedStep traced_step();
  // With the bytes that were counted in its last step, if the plan fits.
  PlanDetails plan_details() const;
  const Graph& graph() const { return graph_; }

 private:
  // One method, what is known about it, and what its last step left.
  struct Contestant {
    MethodReport report;
    std::unique_ptr<Trainee> trainee = {};  // none if it does not fit
    PlannedTrainee* planned = nullptr;      // the same, of planned ones
    Plan plan = {};
    std::optional<PlanDetails> refused = {};  // the plan, if it does not fit
    at::Tensor loss = {};
    at::Tensor generator_state = {};
    std::vector<int64_t> step_ns = {};
    std::vector<double> ratios = {};
  };

  models::TrainingTask new_task() const;
  bool prepare_all();
  void prepare_plain();
  std::unique_ptr<PlannedTrainee> new_trainee();
  Contestant planned(const std::string& strategy, std::unique_ptr<PlannedTrainee> trainee);
  Contestant planned_before();
  Contestant planned_before_with_update(const PlanFile& file);
  void adopt_saved(const Graph& graph, const Plan& plan, int64_t planned_for_bytes);
  void follow(Contestant& contestant, const Plan& made, std::unique_ptr<PlannedTrainee> trainee);
  void measure_memory(Contestant& contestant, int64_t resident_before);
  void round(int64_t number, bool timed);
  void compare(Contestant& other) const;

  const RunOptions& options_;
  Progress progress_;
  Batch first_batch_;
  at::Tensor first_generator_state_;
  Graph graph_;         // measured once, for all strategies
  SavedCourse course_;  // where it comes from
  Offloading offloading_;
  Floor floor_;
  RunReport report_;
  Contestant plain_;
  std::vector<Contestant> others_;
};

}  // namespace remat
