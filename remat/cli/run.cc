// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/run.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "remat/cli/command.h"
#include "remat/cli/files.h"
#include "remat/cli/measured_step.h"
#include "remat/cli/median.h"
#include "remat/cli/model_task.h"
#include "remat/cli/resident_set.h"
#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/core/verify.h"
#include "remat/libtorch/saved_plan.h"
#include "remat/report/numbers.h"

namespace remat {
namespace {

using Clock = std::chrono::steady_clock;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().contiguous();
  const at::Tensor y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

bool all_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, same_bits);
}

[[noreturn]] void refuse(const std::string& plan, const std::string& reason) {
  throw Error("the plan of " + shown_path(plan) + " is not used: " + reason);
}

}  // namespace

models::TrainingTask Run::new_task() const { return make_task(options_.model, options_.seed); }

// The first steps set up what is set up once; the one after them is counted.
void Run::measure_memory(Contestant& contestant, int64_t resident_before) {
  Trainee& trainee = *contestant.trainee;
  trainee.without_trace([&] {
    trainee.warm_up(first_batch_);
    trimmed_resident_bytes();
    const auto resident = peak_resident_bytes(
        [&] { contestant.report.measured_peak_bytes = trainee.counted_peak_bytes(first_batch_); });
    if (resident) contestant.report.resident_bytes = *resident - resident_before;
  });
  at::Generator(at::detail::getDefaultCPUGenerator()).set_state(first_generator_state_);
}

void Run::prepare_plain() {
  progress_.show("plain LibTorch");
  const int64_t resident_before = trimmed_resident_bytes();
  plain_.trainee = plain_trainee(new_task(), options_.model.optimizer);
  // As a new task leaves it. With the update inside, the steps before the first round are part of
  // the training.
  first_generator_state_ = at::detail::getDefaultCPUGenerator().get_state();
  first_batch_ = plain_.trainee->task().make_batch(options_.seed);
  report_.parameters = parameter_count(plain_.trainee->task());
  measure_memory(plain_, resident_before);
}

// A fresh model, and its recording unless a TrainingStep makes it. Times are those of the first
// one: the graphs are the same.
std::unique_ptr<PlannedTrainee> Run::new_trainee() {
  const bool first = graph_.ops.empty();
  models::TrainingTask task = new_task();
  if (first) {
    offloading_ = open_offloading(options_.model.moves);
    MeasuredStep step = capture_and_measure(options_.model, offloading_, task, first_batch_, progress_);
    graph_ = std::move(step.graph);
    course_ = std::move(step.course);
    if (step.recording)
      return replayed_trainee(std::move(task), std::move(*step.recording), graph_, offloading_.channel);
    task = new_task();  // measuring has trained that one
  }
  if (options_.model.updates_inside()) {
    return std::make_unique<SteppedTrainee>(std::move(task), options_.model, offloading_, graph_, course_);
  }
  Recording recording = capture_task(task, first_batch_, options_.model.moves.pack, offloading_, &progress_);
  const std::string difference = graph_difference(graph_, recording.graph);
  if (!difference.empty()) {
    throw Error("two captures of the same model gave different graphs: " + difference);
  }
  recording.graph = graph_;
  return replayed_trainee(std::move(task), std::move(recording), graph_, offloading_.channel);
}

Run::Contestant Run::planned(const std::string& strategy, std::unique_ptr<PlannedTrainee> trainee) {
  PlanOptions options{.budget_bytes = report_.budget_bytes,
                      .strategy = strategy,
                      .placed = true,
                      .time_limit_seconds = options_.time_limit_seconds,
                      .seed = static_cast<uint64_t>(options_.seed)};
  show_planning(options, progress_);
  const auto start = Clock::now();
  const Plan made = plan(graph_, options);
  Contestant contestant;
  MethodReport& report = contestant.report;
  report.method = strategy;
  report.chosen_strategy = made.strategy;
  report.plan_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report.feasible = made.feasible;
  if (!made.feasible) {
    Schedule schedule = rewrite(graph_, made.order);
    PlanReport refused = report_plan(graph_, made, schedule, floor_, report_.budget_bytes);
    refused.strategy = strategy;
    report.fault = infeasible_message(refused);
    if (others_.empty()) contestant.refused = PlanDetails{graph_, made, std::move(schedule), refused.placement};
    return contestant;
  }
  trainee->follow(made);
  follow(contestant, made, std::move(trainee));
  return contestant;
}

// What a saved plan says of its graph and its budget.
void Run::adopt_saved(const Graph& graph, const Plan& plan, int64_t planned_for_bytes) {
  graph_ = graph;
  floor_ = floor(graph_, plan);
  const int64_t reserved_bytes = graph_.external_bytes() + plan.placement->arena_bytes;
  report_.keep_all_peak_bytes = keep_all_baseline(graph_).peak_bytes;
  report_.budget_bytes = !options_.budget.empty()
                             ? running_budget(options_.budget, report_.keep_all_peak_bytes, graph_)
                         : planned_for_bytes != kNoBudget ? planned_for_bytes
                                                          : reserved_bytes;
  if (reserved_bytes > report_.budget_bytes) {
    refuse(options_.plan, detail::concat("it needs ", format_bytes(reserved_bytes),
                                         "; the budget is ", format_bytes(report_.budget_bytes)));
  }
}

// The step is recorded and neither measured nor planned: its times are the file's.
Run::Contestant Run::planned_before() {
  const PlanFile file = checked_plan(read_file(options_.plan), shown_path(options_.plan));
  if (options_.model.updates_inside()) return planned_before_with_update(file);
  models::TrainingTask task = new_task();
  offloading_ = open_offloading(options_.model.moves);
  Recording recording = capture_task(task, first_batch_, options_.model.moves.pack, offloading_, &progress_);
  const FoundCourse found = find_course(file, recording);
  if (found.course == nullptr) refuse(options_.plan, found.refusal);
  const std::string refusal = take_moves(*found.course, offloading_.channel.get(), recording);
  if (!refusal.empty()) refuse(options_.plan, refusal);
  Graph graph = found.course->graph;
  graph.channel = recording.graph.channel;  // none where nothing is offloaded: fewer moves
  add_moves(graph);
  adopt_saved(graph, found.course->plan, found.course->budget_bytes);
  auto trainee = replayed_trainee(std::move(task), std::move(recording), graph_, offloading_.channel);
  trainee->follow(found.course->plan);
  Contestant contestant{.report = {.method = "saved plan", .saved_plan = true}};
  follow(contestant, found.course->plan, std::move(trainee));
  return contestant;
}

// Which course of the file it is, if any, the step says once it has been recorded.
Run::Contestant Run::planned_before_with_update(const PlanFile& file) {
  progress_.show("recording a step");
  offloading_ = open_offloading(options_.model.moves);
  auto trainee = std::make_unique<SteppedTrainee>(new_task(), options_.model, offloading_, file);
  try {
    trainee->warm_up(first_batch_);
  } catch (const PlanRefused& refused) {
    refuse(options_.plan, refused.what());
  }
  const Plan made = trainee->plan();
  const auto course = std::ranges::find_if(
      file.courses, [&](const SavedCourse& each) { return each.plan.order == made.order; });
  adopt_saved(trainee->graph(), made,
              course != file.courses.end() ? course->budget_bytes : kNoBudget);
  Contestant contestant{.report = {.method = "saved plan", .saved_plan = true}};
  follow(contestant, made, std::move(trainee));
  return contestant;
}

void Run::follow(Contestant& contestant, const Plan& made,
                 std::unique_ptr<PlannedTrainee> trainee) {
  MethodReport& report = contestant.report;
  report.chosen_strategy = made.strategy;
  report.predicted_peak_bytes = simulate_peak(graph_, trainee->schedule()).bytes;
  report.reserved_bytes = graph_.external_bytes() + trainee->arena_bytes();
  const OrderCounts extra = count_extra(graph_, made.order);
  report.recomputed_ops = extra.recomputed_ops;
  report.packed_values = extra.packed_values;
  report.offloaded_bytes = extra.offloaded_bytes;
  if (options_.verify) {
    const auto violation = verify(graph_, trainee->schedule(), report_.budget_bytes);
    if (violation) {
      throw Error(detail::concat("the schedule of ", report.method,
                                 " is wrong: ", name(violation->kind), " at step ", violation->step,
                                 " (", violation->op, "): ", violation->reason));
    }
  }
  contestant.planned = trainee.get();
  contestant.trainee = std::move(trainee);
  contestant.plan = made;
}

bool Run::prepare() {
  try {
    return prepare_all();
  } catch (const DoesNotFit&) {
    throw_too_large(model_label(options_.model));
  }
}

bool Run::prepare_all() {
  prepare_plain();
  int64_t resident_before = trimmed_resident_bytes();
  if (!options_.plan.empty()) {
    others_.push_back(planned_before());
  } else {
    auto first = new_trainee();
    floor_ = floor(graph_);
    report_.keep_all_peak_bytes = keep_all_baseline(graph_).peak_bytes;
    report_.budget_bytes =
        running_budget(options_.budget, report_.keep_all_peak_bytes, graph_);
    others_.push_back(planned(options_.strategy, std::move(first)));
  }
  if (!others_.front().report.feasible) return false;
  measure_memory(others_.front(), resident_before);
  for (const std::string& method : options_.compare) {
    resident_before = trimmed_resident_bytes();
    if (method == kCheckpoint) {
      others_.push_back({.report = {.method = method},
                         .trainee = checkpointed_trainee(new_task(), options_.model.optimizer)});
    } else {
      others_.push_back(planned(method, new_trainee()));
    }
    if (others_.back().trainee != nullptr) measure_memory(others_.back(), resident_before);
  }
  return true;
}

void Run::compare(Contestant& other) const {
  SameBits& same = other.report.bit_identical;
  const Trainee& plain = *plain_.trainee;
  const Trainee& its = *other.trainee;
  same.loss = same.loss && same_bits(plain_.loss, other.loss);
  same.rng = same.rng && same_bits(plain_.generator_state, other.generator_state);
  same.buffers = same.buffers && all_same(plain.buffers(), its.buffers());
  if (plain.updates_inside()) {
    same.gradients.reset();  // they were applied, and are gone
    same.parameters =
        same.parameters.value_or(true) && all_same(plain.parameters(), its.parameters());
    same.optimizer_state = same.optimizer_state.value_or(true) &&
                           all_same(plain.optimizer_state(), its.optimizer_state());
    return;
  }
  const auto gradient = [](const at::Tensor& parameter) { return parameter.grad(); };
  same.gradients =
      same.gradients.value_or(true) &&
      std::ranges::equal(plain.parameters(), its.parameters(), same_bits, gradient, gradient);
}

// Every method does the same step from the same state of the generator, one after the other.
void Run::round(int64_t number, bool timed) {
  const Batch batch = plain_.trainee->task().make_batch(options_.seed + 1 + number);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  const auto step = [&](Contestant& contestant) {
    generator.set_state(state);
    contestant.loss = at::Tensor();
    const auto start = Clock::now();
    contestant.loss = contestant.trainee->step(batch);
    const auto elapsed_ns = std::chrono::nanoseconds(Clock::now() - start).count();
    contestant.generator_state = generator.get_state();
    if (timed) contestant.step_ns.push_back(elapsed_ns);
  };
  step(plain_);
  if (number == 0) report_.first_loss = plain_.loss.item<double>();
  report_.last_loss = plain_.loss.item<double>();
  for (Contestant& other : others_) {
    if (other.trainee == nullptr) continue;
    step(other);
    compare(other);
    if (other.planned != nullptr) {
      const StepCounts counts = other.planned->counts();
      other.report.measured_peak_bytes =
          std::max(other.report.measured_peak_bytes, counts.peak_bytes);
      other.report.outside_allocations += counts.outside_allocations;
    }
    if (timed) {
      other.ratios.push_back(static_cast<double>(other.step_ns.back()) /
                             static_cast<double>(plain_.step_ns.back()));
    }
    other.trainee->update();
  }
  plain_.trainee->update();
}

void Run::train() {
  for (int number = 0; number < options_.steps; ++number) {
    progress_.show(detail::concat("step ", number + 1, " of ", options_.steps),
                   static_cast<double>(number) / options_.steps);
    round(number, true);
  }
  if (!options_.verify) return;
  int more = 1;
  for (Contestant& other : others_) {
    if (other.planned != nullptr) more = std::max(more, 1 + other.planned->poison_frees());
  }
  for (int i = 0; i < more; ++i) round(options_.steps + i, false);
}

RunReport Run::report() const {
  RunReport report = report_;
  report.model = model_label(options_.model);
  report.floor_bytes = floor_.bytes;
  report.floor_op = op_label(graph_, floor_.op);
  report.external_bytes = graph_.external_bytes();
  report.eager_peak_bytes = plain_.report.measured_peak_bytes;
  report.eager_resident_bytes = plain_.report.resident_bytes;
  report.verified = options_.verify;
  report.rounds = static_cast<int>(plain_.step_ns.size());
  if (report.rounds > 0) report.eager_step_ns = median(plain_.step_ns);
  for (const Contestant& other : others_) {
    report.methods.push_back(other.report);
    MethodReport& method = report.methods.back();
    if (other.step_ns.empty()) continue;
    method.step_ns = median(other.step_ns);
    method.time_ratio_to_eager = median(other.ratios);
  }
  return report;
}

TracedStep Run::traced_step() {
  PlannedTrainee& ours = *others_.front().planned;
  TracedStep measured{"measured inside " + format_bytes(report_.budget_bytes), {}};
  ours.without_trace([&] { measured.calls = ours.traced_step(first_batch_); });
  return measured;
}

PlanDetails Run::plan_details() const {
  if (others_.front().refused) return *others_.front().refused;
  const PlannedTrainee& ours = *others_.front().planned;
  return {graph_, others_.front().plan, ours.schedule(), ours.placement(), ours.measured_bytes()};
}

}  // namespace remat
