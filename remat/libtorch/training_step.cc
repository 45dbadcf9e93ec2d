// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/training_step.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "remat/core/error.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/libtorch/arena.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/measure.h"
#include "remat/libtorch/recording_check.h"

namespace remat {
namespace {

using detail::concat;

// What a recording and its plan are valid for.
struct Conditions {
  std::vector<bool> has_gradient = {};  // by parameter, before the step
  std::vector<bool> requires_gradient = {};
  std::optional<at::ScalarType> autocast = {};  // where the caller has it on
  int threads = 0;
  bool operator==(const Conditions&) const = default;
};

// One way in which the step is run.
struct Variant {
  Conditions conditions;
  std::unique_ptr<const Recording> recording;  // what an Execution refers to must not move
  Graph graph;                                 // with times
  Plan plan;
  Schedule schedule;
  const Placement& placement() const { return *plan.placement; }
  std::optional<Execution> execution;
  StepReport report;
};

double seconds_since(int64_t start_ns) {
  return static_cast<double>(detail::cpu_device().now_ns() - start_ns) / 1e9;
}

}  // namespace

class TrainingStep::Implementation {
 public:
  Implementation(LossFunction loss_of, std::vector<at::Tensor> parameters,
                 std::vector<at::Tensor> buffers, TrainingStepOptions options)
      : loss_of_(std::move(loss_of)), parameters_(std::move(parameters)),
        buffers_(std::move(buffers)), options_(std::move(options)) {
    if (options_.budget_bytes < 0) {
      throw Error(concat("[step] the budget is ", options_.budget_bytes,
                         " bytes; expected a positive number"));
    }
  }

  at::Tensor run(const Batch& batch);
  const Variant& last() const {
    if (last_ == nullptr) {
      throw Error("[step] nothing to report; run the step first");
    }
    return *last_;
  }

 private:
  Variant& variant_for(const Batch& batch);
  std::unique_ptr<Variant> make_variant(Conditions conditions, const Batch& batch);
  void make_plan(Variant& variant);
  void use_arena(Variant& variant);

  LossFunction loss_of_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
  TrainingStepOptions options_;
  std::shared_ptr<detail::Arena> arena_;
  std::vector<std::unique_ptr<Variant>> variants_;
  Variant* last_ = nullptr;
};

void TrainingStep::Implementation::make_plan(Variant& variant) {
  const int64_t start = detail::cpu_device().now_ns();
  const PlanOptions plan_options{.budget_bytes = options_.budget_bytes,
                                 .strategy = options_.strategy,
                                 .placed = true,
                                 .time_limit_seconds = options_.plan_seconds,
                                 .seed = options_.seed};
  variant.plan = remat::plan(variant.graph, plan_options);
  if (!variant.plan.feasible) {
    const Floor least = floor(variant.graph, variant.plan);
    const Op& op = variant.graph.op(least.op);
    throw Error(concat("[step] no plan fits the budget of ", format_bytes(options_.budget_bytes),
                       ": the least known is ", format_bytes(std::max(least.bytes, variant.plan.peak_bytes)),
                       " (set by ", op.name, op.scope.empty() ? "" : " of " + op.scope, " ",
                       name(op.phase), "); raise the budget or make the batch smaller"));
  }
  variant.schedule = rewrite(variant.graph, variant.plan.order);
  variant.report.plan_seconds = seconds_since(start);
}

std::unique_ptr<Variant> TrainingStep::Implementation::make_variant(Conditions conditions,
                                                                    const Batch& batch) {
  auto variant = std::make_unique<Variant>();
  variant->conditions = std::move(conditions);
  variant->report.budget_bytes = options_.budget_bytes;
  int64_t start = detail::cpu_device().now_ns();
  variant->recording = std::make_unique<const Recording>(
      capture(loss_of_, batch, parameters_, {.buffers = buffers_}));
  variant->report.capture_seconds = seconds_since(start);
  start = detail::cpu_device().now_ns();
  variant->graph = measure(*variant->recording, batch,
                           {.seconds = options_.measure_seconds, .time_whole_step = false})
                       .graph;
  variant->report.measure_seconds = seconds_since(start);
  make_plan(*variant);
  detail::cpu_device().trim();
  return variant;
}

// All variants run in one arena. A larger one replaces it before a second could exist.
void TrainingStep::Implementation::use_arena(Variant& variant) {
  if (arena_ == nullptr || arena_->bytes() < variant.placement().arena_bytes) {
    for (const auto& each : variants_) {
      each->execution.reset();
    }
    arena_.reset();
    arena_ = make_arena(variant.placement().arena_bytes);
  }
  if (!variant.execution) {
    variant.execution.emplace(*variant.recording, variant.schedule, variant.placement(), arena_,
                              options_.execute);
  }
}

Variant& TrainingStep::Implementation::variant_for(const Batch& batch) {
  Conditions now{.threads = detail::cpu_device().thread_count()};
  for (const at::Tensor& parameter : parameters_) {
    now.has_gradient.push_back(parameter.grad().defined());
    now.requires_gradient.push_back(parameter.requires_grad());
  }
  if (at::autocast::is_autocast_enabled(at::kCPU)) {
    now.autocast = at::autocast::get_autocast_dtype(at::kCPU);
  }
  if (!variants_.empty()) {
    detail::check_batch(*variants_.front()->recording, batch);
  }
  const auto known = std::ranges::find_if(variants_, [&](const auto& variant) {
    return variant->conditions == now && detail::layout_change(*variant->recording).empty();
  });
  if (known != variants_.end()) {
    return **known;
  }
  if (!variants_.empty() && options_.notice) {
    const bool threads = variants_.back()->conditions.threads != now.threads;
    options_.notice(threads ? concat("the step is captured and measured again: it ran with ",
                                     variants_.back()->conditions.threads, " threads, now with ",
                                     now.threads)
                            : "the step is captured and measured again: other gradients exist "
                              "before it than before, or lie elsewhere in memory, or other "
                              "parameters require one, or autocast was switched");
  }
  variants_.push_back(make_variant(std::move(now), batch));
  return *variants_.back();
}

at::Tensor TrainingStep::Implementation::run(const Batch& batch) {
  Variant& variant = variant_for(batch);
  use_arena(variant);
  StepResult result = variant.execution->run(batch);
  last_ = &variant;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (result.gradients[i].defined()) {
      parameters_[i].mutable_grad() = result.gradients[i];
    }
  }
  const StepCounts& counts = variant.report.counts = variant.execution->counts();
  if (counts.outside_allocations > 0 && options_.notice) {
    options_.notice(concat(counts.outside_allocations, " requests for ",
                           format_bytes(counts.outside_bytes),
                           " were not foreseen by the plan and answered outside of the arena"));
  }
  return result.loss;
}

TrainingStep::TrainingStep(LossFunction loss_of, std::vector<at::Tensor> parameters,
                           std::vector<at::Tensor> buffers, TrainingStepOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(loss_of), std::move(parameters),
                                                       std::move(buffers), std::move(options))) {}
TrainingStep::~TrainingStep() = default;
TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep& TrainingStep::operator=(TrainingStep&&) noexcept = default;

at::Tensor TrainingStep::operator()(const Batch& batch) { return implementation_->run(batch); }

StepReport TrainingStep::report() const {
  const Variant& variant = implementation_->last();
  StepReport report = variant.report;
  const Baseline baseline = keep_all_baseline(variant.graph);
  const Simulation simulation = simulate(variant.graph, variant.schedule);
  report.keep_all_peak_bytes = baseline.peak_bytes;
  report.keep_all_time_ns = baseline.time_ns;
  report.eager_peak_bytes = variant.recording->eager_peak_bytes;
  report.floor_bytes = std::min(floor(variant.graph, variant.plan).bytes, variant.plan.peak_bytes);
  report.predicted_peak_bytes = simulation.peak_bytes;
  report.measured_peak_bytes = report.counts.peak_bytes;
  report.arena_bytes = variant.placement().arena_bytes;
  report.external_bytes = variant.graph.external_bytes();
  report.peak_bytes = report.external_bytes + report.arena_bytes;
  report.time_ns = simulation.time_ns;
  report.strategy = variant.plan.strategy;
  report.timeline = simulation.timeline;
  return report;
}

const Graph& TrainingStep::graph() const { return implementation_->last().graph; }
const Plan& TrainingStep::plan() const { return implementation_->last().plan; }
const Schedule& TrainingStep::schedule() const { return implementation_->last().schedule; }

}  // namespace remat
