// SPDX-License-Identifier: Apache-2.0

// remat run: trains a model inside a budget beside plain LibTorch, and compares bytes, time and
// bits.

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/files.h"
#include "remat/cli/model_task.h"
#include "remat/cli/resident_set.h"
#include "remat/cli/trainee.h"
#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/core/verify.h"
#include "remat/libtorch/training_step.h"
#include "remat/report/numbers.h"
#include "remat/report/plan_report.h"
#include "remat/report/run_report.h"

namespace remat {
namespace {

using Clock = std::chrono::steady_clock;

const std::string kCheckpoint = "checkpoint";

struct RunArguments {
  ModelOptions model;
  std::vector<std::string> budget;
  std::string strategy = "auto";
  std::vector<std::string> compare;
  int steps = 5;
  int64_t seed = 1;
  double time_limit_seconds = TrainingStepOptions{}.plan_seconds;
  bool verify = false;
  std::string json;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().contiguous();
  const at::Tensor y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// One method, what is known about it, and what its last step left.
struct Contestant {
  MethodReport report;
  std::unique_ptr<Trainee> trainee;  // none if it does not fit
  at::Tensor loss = {};
  at::Tensor generator_state = {};
  std::vector<int64_t> step_ns = {};
  std::vector<double> ratios = {};
};

template <typename T>
T median(std::vector<T> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

class Run {
 public:
  explicit Run(const RunArguments& arguments) : arguments_(arguments) {}

  // False if the budget is too small for what was asked for: the report says why.
  bool prepare();
  void train();
  RunReport report() const;

 private:
  models::TrainingTask new_task() const { return make_task(arguments_.model, arguments_.seed); }
  void prepare_plain();
  std::unique_ptr<PlannedTrainee> record();
  Contestant planned(const std::string& strategy, std::unique_ptr<PlannedTrainee> trainee);
  void measure_memory(Contestant& contestant, int64_t resident_before);
  void round(int64_t number, bool timed);
  void compare(Contestant& other) const;

  const RunArguments& arguments_;
  Progress progress_;
  Batch first_batch_;
  Graph graph_;  // measured once, for all strategies
  Floor floor_;
  RunReport report_;
  Contestant plain_;
  std::vector<Contestant> others_;
};

// The first step sets up what is set up once; the second is counted.
void Run::measure_memory(Contestant& contestant, int64_t resident_before) {
  Trainee& trainee = *contestant.trainee;
  trainee.without_trace([&] {
    trainee.step(first_batch_);
    trimmed_resident_bytes();
    const auto resident = peak_resident_bytes([&] {
      contestant.report.measured_peak_bytes = trainee.counted_peak_bytes(first_batch_);
    });
    if (resident) contestant.report.resident_bytes = *resident - resident_before;
  });
}

void Run::prepare_plain() {
  progress_.show("plain LibTorch");
  const int64_t resident_before = trimmed_resident_bytes();
  plain_.trainee = plain_trainee(new_task());
  first_batch_ = plain_.trainee->task().make_batch(arguments_.seed);
  report_.parameters = parameter_count(plain_.trainee->task());
  measure_memory(plain_, resident_before);
}

// A fresh model and its recording. Times are those of the first one: the graphs are the same.
std::unique_ptr<PlannedTrainee> Run::record() {
  models::TrainingTask task = new_task();
  if (graph_.ops.empty()) {
    MeasuredStep step = capture_and_measure(task, first_batch_, progress_);
    graph_ = std::move(step.measurement.graph);
    return std::make_unique<PlannedTrainee>(std::move(task), std::move(step.recording), graph_);
  }
  progress_.show("capturing a step");
  Recording recording = capture_task(task, first_batch_);
  for (size_t i = 0; i < recording.graph.ops.size() && i < graph_.ops.size(); ++i) {
    recording.graph.ops[i].time_ns = graph_.ops[i].time_ns;
  }
  if (recording.graph != graph_) throw Error("two captures of the same model gave different graphs");
  return std::make_unique<PlannedTrainee>(std::move(task), std::move(recording), graph_);
}

Contestant Run::planned(const std::string& strategy, std::unique_ptr<PlannedTrainee> trainee) {
  PlanOptions options{.budget_bytes = report_.budget_bytes,
                      .strategy = strategy,
                      .placed = true,
                      .time_limit_seconds = arguments_.time_limit_seconds,
                      .seed = static_cast<uint64_t>(arguments_.seed)};
  options.progress = [&](const PlanProgress& made) {
    if (progress_.wanted()) progress_.show(detail::concat("planning: ", made.moves, " moves"));
  };
  const auto start = Clock::now();
  const Plan made = plan(graph_, options);
  Contestant contestant;
  MethodReport& report = contestant.report;
  report.method = strategy;
  report.chosen_strategy = made.strategy;
  report.plan_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report.feasible = made.feasible;
  if (!made.feasible) {
    PlanReport refused =
        report_plan(graph_, made, rewrite(graph_, made.order), floor_, report_.budget_bytes);
    refused.strategy = strategy;
    report.fault = infeasible_message(refused);
    return contestant;
  }
  trainee->follow(made);
  report.predicted_peak_bytes = simulate_peak(graph_, trainee->schedule()).bytes;
  report.reserved_bytes = graph_.external_bytes() + trainee->arena_bytes();
  report.recomputed_ops = static_cast<int64_t>(made.order.size() - graph_.ops.size());
  if (arguments_.verify) {
    const auto violation = verify(graph_, trainee->schedule(), report_.budget_bytes);
    if (violation) {
      throw Error(detail::concat("the schedule of ", strategy, " is wrong: ",
                                 name(violation->kind), " at step ", violation->step, " (",
                                 violation->op, "): ", violation->reason));
    }
  }
  contestant.trainee = std::move(trainee);
  return contestant;
}

bool Run::prepare() {
  prepare_plain();
  int64_t resident_before = trimmed_resident_bytes();
  auto first = record();
  floor_ = floor(graph_);
  report_.keep_all_peak_bytes = keep_all_baseline(graph_).peak_bytes;
  report_.budget_bytes = parse_budget(arguments_.budget.front(), report_.keep_all_peak_bytes);
  others_.push_back(planned(arguments_.strategy, std::move(first)));
  if (!others_.front().report.feasible) return false;
  measure_memory(others_.front(), resident_before);
  for (const std::string& method : arguments_.compare) {
    resident_before = trimmed_resident_bytes();
    if (method == kCheckpoint) {
      others_.push_back({.report = {.method = method}, .trainee = checkpointed_trainee(new_task())});
    } else {
      others_.push_back(planned(method, record()));
    }
    if (others_.back().trainee != nullptr) measure_memory(others_.back(), resident_before);
  }
  return true;
}

void Run::compare(Contestant& other) const {
  SameBits& same = other.report.bit_identical;
  same.loss = same.loss && same_bits(plain_.loss, other.loss);
  same.rng = same.rng && same_bits(plain_.generator_state, other.generator_state);
  const auto all_same = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    return std::ranges::equal(a, b, same_bits);
  };
  same.buffers = same.buffers && all_same(plain_.trainee->buffers(), other.trainee->buffers());
  const auto gradient = [](const at::Tensor& parameter) { return parameter.grad(); };
  same.gradients = same.gradients &&
                   std::ranges::equal(plain_.trainee->parameters(), other.trainee->parameters(),
                                      same_bits, gradient, gradient);
}

// Every method does the same step from the same state of the generator, one after the other.
void Run::round(int64_t number, bool timed) {
  const Batch batch = plain_.trainee->task().make_batch(arguments_.seed + 1 + number);
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
    if (const auto* ours = dynamic_cast<const PlannedTrainee*>(other.trainee.get())) {
      other.report.measured_peak_bytes =
          std::max(other.report.measured_peak_bytes, ours->counts().peak_bytes);
      other.report.outside_allocations += ours->counts().outside_allocations;
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
  for (int number = 0; number < arguments_.steps; ++number) {
    progress_.show(detail::concat("step ", number + 1, " of ", arguments_.steps));
    round(number, true);
  }
  if (!arguments_.verify) return;
  for (Contestant& other : others_) {
    if (auto* ours = dynamic_cast<PlannedTrainee*>(other.trainee.get())) ours->poison_frees();
  }
  round(arguments_.steps, false);
}

RunReport Run::report() const {
  RunReport report = report_;
  report.model = model_label(arguments_.model);
  report.floor_bytes = floor_.bytes;
  report.floor_op = op_label(graph_, floor_.op);
  report.external_bytes = graph_.external_bytes();
  report.eager_peak_bytes = plain_.report.measured_peak_bytes;
  report.eager_resident_bytes = plain_.report.resident_bytes;
  report.verified = arguments_.verify;
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

int run(const RunArguments& arguments) {
  RunReport report;
  {
    Run run(arguments);
    if (run.prepare()) run.train();
    report = run.report();
  }
  if (!arguments.json.empty()) {
    nlohmann::json json = run_json(report);
    json.update(model_json(arguments.model));
    write_json(arguments.json, json);
  }
  if (!report.methods.front().feasible) {
    report_error("remat run", report.methods.front().fault);
    return kInfeasible;
  }
  if (arguments.json != "-") write_file("-", run_text(report));
  for (const MethodReport& method : report.methods) {
    const std::string broken = broken_promise(report, method);
    if (broken.empty()) continue;
    report_error("remat run", broken);
    return kError;
  }
  return kDone;
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command =
      app.add_subcommand("run", "Train a model inside a budget beside plain LibTorch and compare");
  add_model_arguments(*command, arguments->model);
  add_budget_option(*command, arguments->budget, false);
  command->add_option("--steps", arguments->steps, "Training steps, each of them a timed round")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--strategy", arguments->strategy, "How to decide:" + strategy_help())
      ->check(strategy_fault, "")
      ->type_name("NAME");
  command
      ->add_option("--compare", arguments->compare,
                   "Further strategies, with commas, in the same rounds; checkpoint is eager "
                   "checkpointing, block by block")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check([](const std::string& name) {
        return name == kCheckpoint ? "" : strategy_fault(name);
      }, "")
      ->type_name("LIST");
  command->add_flag("--verify", arguments->verify,
                    "Check every schedule independently, and run one more step in which freed memory "
                    "is overwritten");
  command
      ->add_option("--time-limit", arguments->time_limit_seconds, "Seconds that planning may take")
      ->check(CLI::NonNegativeNumber)
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "Of parameters, batches and the search")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->type_name("N")
      ->capture_default_str();
  add_json_option(*command, arguments->json);
  command->footer(
      "Every method trains a model of its own from the same seed, with SGD and momentum outside of the "
      "step.\nExits with 3 if no plan fits, with 1 if a bit differs or a peak is not as predicted.");
  command->callback([arguments, &exit_code] {
    exit_code = with_plain_errors([&] { return run(*arguments); });
  });
}

}  // namespace remat
