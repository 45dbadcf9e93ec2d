// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/sweep.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "remat/cli/command.h"
#include "remat/cli/median.h"
#include "remat/cli/measured_step.h"
#include "remat/cli/model_task.h"
#include "remat/cli/planned_trainee.h"
#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/core/fit.h"
#include "remat/core/plan.h"
#include "remat/core/units.h"
#include "remat/libtorch/available_memory.h"
#include "remat/libtorch/measure.h"

namespace remat {
namespace {

struct SweepInterrupted {};

constexpr int kLookedAtFirst = 2;  // sizes

// A model and what was captured of its step.
struct CapturedTask {
  models::TrainingTask task;
  Batch first;
  Recording recording;
};

// A model at one batch size: its graph and, for measured sweeps, two models that train.
struct SweptModel {
  int64_t batch = 0;
  Graph graph;
  Baseline baseline;
  Floor least;
  std::unique_ptr<Trainee> plain;            // measured sweeps only
  std::unique_ptr<PlannedTrainee> planned;
  int64_t plain_peak_bytes = 0;
};

struct MeasuredSteps {
  int64_t plain_ns = 0;
  int64_t planned_ns = 0;
  double ratio = 0;  // the median of the rounds'
  int64_t peak_bytes = 0;
};

class Sweep {
 public:
  Sweep(const SweepOptions& options, const std::function<bool()>& interrupted)
      : options_(options), interrupted_(interrupted) {}

  SweepReport run() {
    prepare();
    try {
      choose_frontier();
      for (const int64_t batch : batches_) sweep_batch(batch);
      sweep_frontier();
      find_largest();
    } catch (const SweepInterrupted&) {
      report_.interrupted = true;
    }
    std::ranges::sort(report_.batches, {}, &BatchPoint::batch);
    return std::move(report_);
  }

 private:
  void prepare();
  void check_interrupt() const {
    if (interrupted_()) throw SweepInterrupted();
  }
  void show(const std::string& what);
  ModelOptions at_batch(int64_t batch) const;
  int64_t estimated_peak_bytes(int64_t batch) const;
  bool fits_here(int64_t batch) const;
  void choose_frontier();
  CapturedTask capture_at(int64_t batch);
  Graph measured_graph(int64_t batch, const CapturedTask& captured);
  Graph graph_of(int64_t batch);
  SweptModel model_at(int64_t batch);
  Plan plan_at(const Graph& graph, int64_t budget_bytes, const std::string& strategy);
  MeasuredSteps measure_plan(SweptModel& model, const Plan& made);
  void sweep_batch(int64_t batch);
  void too_large(BatchPoint& point, int64_t peak_bytes);
  void sweep_frontier();
  Graph graph_at(int64_t batch);
  PlainRun run_plainly(int64_t batch);
  PlannedRun run_planned(int64_t batch, int64_t budget_bytes);
  bool can_capture(int64_t batch);
  void find_largest();
  LargestBatch largest(int64_t searched, SweptStep BatchPoint::*step) const;

  const SweepOptions& options_;
  const std::function<bool()>& interrupted_;
  Offloading offloading_ = open_offloading(options_.model.moves);
  Progress progress_;
  SweepReport report_;
  std::vector<int64_t> batches_;  // the frontier's first: the limit may be a share of its peak
  std::unique_ptr<SweptModel> frontier_;
  std::vector<SizedGraph> captured_;
  double done_ = 0;   // what the progress bar says, in plans and captures
  double whole_ = 1;
};

void Sweep::prepare() {
  batches_ = options_.batches;
  if (options_.model.batch > 0) batches_.push_back(options_.model.batch);
  std::ranges::sort(batches_);
  const auto repeated = std::ranges::unique(batches_);
  batches_.erase(repeated.begin(), repeated.end());
  report_.frontier_batch = options_.model.batch > 0 ? options_.model.batch : batches_.back();
  report_.model = model_label(at_batch(report_.frontier_batch));
  if (options_.limit.empty()) {
    report_.limit_bytes = detail::available_bytes("/");
  } else if (!options_.limit.ends_with('%')) {
    report_.limit_bytes = parse_budget(options_.limit, 0);
  }
  report_.measured = options_.measured;
  report_.steps = options_.measured ? options_.steps : 0;
  report_.limit_given = !options_.limit.empty();
  constexpr size_t kSearch = 4;  // for the largest batch: about as much as so many plans
  const size_t frontier = options_.budgets.size() * options_.strategies.size();
  whole_ = static_cast<double>(kLookedAtFirst + 2 * batches_.size() + frontier + kSearch);
}

void Sweep::show(const std::string& what) {
  check_interrupt();
  progress_.show("sweep", done_ / whole_, what);
}

ModelOptions Sweep::at_batch(int64_t batch) const {
  ModelOptions model = options_.model;
  model.batch = batch;
  return model;
}

// By a straight line through the two nearest sizes that were captured; through one, as if all of it grew
// with the batch: at a larger size it is less.
int64_t Sweep::estimated_peak_bytes(int64_t batch) const {
  struct Known {
    int64_t batch, peak_bytes;
  };
  std::vector<Known> known;
  for (const SizedGraph& each : captured_) {
    known.push_back({each.size, keep_all_baseline(each.graph).peak_bytes});
  }
  std::ranges::sort(known, {}, [&](const Known& each) { return std::abs(each.batch - batch); });
  const Known& a = known.front();
  const Known b = known.size() > 1 ? known[1] : Known{0, 0};
  const double slope =
      static_cast<double>(b.peak_bytes - a.peak_bytes) / static_cast<double>(b.batch - a.batch);
  return a.peak_bytes + static_cast<int64_t>(slope * static_cast<double>(batch - a.batch));
}

// Capturing and measuring hold the plain step's values twice.
bool Sweep::fits_here(int64_t batch) const {
  return estimated_peak_bytes(batch) <= detail::available_bytes("/") / 2;
}

// Capturing runs the plain step, and who takes more memory than there is gets no error, but is ended by the
// system. So two small sizes come first, which say what the others need. The frontier is that of the
// largest one that can be captured, if not of the one that was asked for.
void Sweep::choose_frontier() {
  const int64_t wanted = report_.frontier_batch;
  graph_of(std::min<int64_t>(2, batches_.front()));
  graph_of(std::min<int64_t>(4, batches_[batches_.size() > 1 ? 1 : 0]));
  done_ = kLookedAtFirst;
  report_.frontier_batch = 0;
  for (const int64_t batch : batches_) {
    if (batch <= wanted && fits_here(batch)) report_.frontier_batch = batch;
  }
  const int64_t at = report_.frontier_batch;
  if (at > 0) {
    report_.model = model_label(at_batch(at));
  } else if (report_.limit_bytes == 0) {
    report_.limit_bytes = parse_budget(options_.limit, estimated_peak_bytes(wanted));
  }
  std::ranges::stable_partition(batches_, [&](int64_t batch) { return batch == at; });
}

CapturedTask Sweep::capture_at(int64_t batch) {
  show(detail::concat("batch ", batch, ": capturing and measuring a step"));
  models::TrainingTask task = make_task(at_batch(batch), options_.seed);
  Batch first = task.make_batch(options_.seed);
  Recording recording = capture_task(task, first, options_.model.moves.pack, offloading_);
  check_interrupt();
  return {std::move(task), std::move(first), std::move(recording)};
}

Graph Sweep::measured_graph(int64_t batch, const CapturedTask& captured) {
  // Rounds enough for a median: the sweep compares sizes that differ by factors.
  Measurement measurement = measure(captured.recording, captured.first,
                                    {.seconds = 0.5, .time_whole_step = false,
                                     .poll = [this] { check_interrupt(); }});
  std::erase_if(captured_, [&](const SizedGraph& each) { return each.size == batch; });
  captured_.push_back({batch, measurement.graph});
  return std::move(measurement.graph);
}

// As it was captured, or is now.
Graph Sweep::graph_of(int64_t batch) {
  const auto found = std::ranges::find(captured_, batch, &SizedGraph::size);
  return found != captured_.end() ? found->graph : measured_graph(batch, capture_at(batch));
}

SweptModel Sweep::model_at(int64_t batch) {
  SweptModel model;
  model.batch = batch;
  if (options_.measured) {
    CapturedTask captured = capture_at(batch);
    model.graph = measured_graph(batch, captured);
    model.plain = plain_trainee(make_task(at_batch(batch), options_.seed));
    model.plain->without_trace([&] {
      model.plain->warm_up(captured.first);
      model.plain_peak_bytes = model.plain->counted_peak_bytes(captured.first);
    });
    model.planned = replayed_trainee(std::move(captured.task), std::move(captured.recording), model.graph,
                                     offloading_.channel);
  } else {
    model.graph = graph_of(batch);
  }
  model.baseline = keep_all_baseline(model.graph);
  model.least = floor(model.graph);
  if (!options_.measured) model.plain_peak_bytes = model.baseline.peak_bytes;
  return model;
}

Plan Sweep::plan_at(const Graph& graph, int64_t budget_bytes, const std::string& strategy) {
  PlanOptions options{.budget_bytes = budget_bytes,
                      .strategy = strategy,
                      .placed = true,
                      .time_limit_seconds = options_.time_limit_seconds,
                      .seed = static_cast<uint64_t>(options_.seed),
                      .stop = [this] { return interrupted_(); }};
  Plan made = plan(graph, options);
  check_interrupt();  // a search that was stopped has not found what it would have
  return made;
}

MeasuredSteps Sweep::measure_plan(SweptModel& model, const Plan& made) {
  model.planned->follow(made);
  std::vector<int64_t> plain_ns, planned_ns;
  std::vector<double> ratios;
  MeasuredSteps measured;
  for (int i = 0; i <= options_.steps; ++i) {
    check_interrupt();
    const Batch batch = model.plain->task().make_batch(options_.seed + 1 + i);
    const auto timed = [&](Trainee& trainee, std::vector<int64_t>& times_ns) {
      const auto start = std::chrono::steady_clock::now();
      trainee.step(batch);
      const auto elapsed = std::chrono::steady_clock::now() - start;
      if (i > 0) times_ns.push_back(std::chrono::nanoseconds(elapsed).count());  // the first warms up
    };
    timed(*model.plain, plain_ns);
    timed(*model.planned, planned_ns);
    measured.peak_bytes = std::max(measured.peak_bytes, model.planned->counts().peak_bytes);
    if (i > 0) {
      ratios.push_back(static_cast<double>(planned_ns.back()) / static_cast<double>(plain_ns.back()));
    }
  }
  measured.plain_ns = median(plain_ns);
  measured.planned_ns = median(planned_ns);
  measured.ratio = median(ratios);
  return measured;
}

void Sweep::too_large(BatchPoint& point, int64_t peak_bytes) {
  point.plain = {.fits = peak_bytes <= report_.limit_bytes, .peak_bytes = peak_bytes};
  point.plain_estimated = true;
  point.fault = "the plain step needs about " + format_bytes(peak_bytes) +
                ", and capturing it twice that, more than this machine has left: it was not tried";
  report_.batches.push_back(std::move(point));
}

void Sweep::sweep_batch(int64_t batch) {
  BatchPoint point{.batch = batch};
  if (!fits_here(batch)) {
    too_large(point, estimated_peak_bytes(batch));
    done_ += 2;
    return;
  }
  SweptModel model;
  try {
    model = model_at(batch);
  } catch (const DoesNotFit& found) {
    too_large(point, found.needed_bytes);
    done_ += 2;
    return;
  }
  done_ += 1;
  // A share of the peak of the frontier, which comes first.
  if (report_.limit_bytes == 0) report_.limit_bytes = parse_budget(options_.limit, model.plain_peak_bytes);
  point.plain = {.fits = model.plain_peak_bytes <= report_.limit_bytes,
                 .peak_bytes = model.plain_peak_bytes,
                 .step_ns = model.baseline.time_ns};
  point.floor_bytes = model.least.bytes;
  point.budget_bytes =
      std::max(std::min(report_.limit_bytes, model.plain_peak_bytes / 2), model.least.bytes);
  show(detail::concat("batch ", batch, ": planning inside ", format_bytes(point.budget_bytes)));
  Plan made = plan_at(model.graph, point.budget_bytes, "auto");
  // Addresses may need a little more than the floor's live bytes, and a short search finds none
  // that tight.
  for (int64_t parts = 20; !made.feasible && point.budget_bytes < report_.limit_bytes; parts = 8) {
    point.budget_bytes = std::min(report_.limit_bytes, point.budget_bytes + point.budget_bytes / parts);
    made = plan_at(model.graph, point.budget_bytes, "auto");
  }
  point.strategy = made.strategy;
  point.floor_bytes = std::min(model.least.bytes, made.peak_bytes);
  if (made.feasible && made.peak_bytes <= report_.limit_bytes) {
    point.planned = {.fits = true, .peak_bytes = made.peak_bytes, .step_ns = made.time_ns};
    point.recomputed_ops = count_extra(model.graph, made.order).recomputed_ops;
  } else {
    point.fault = "no plan fits; the least that is known to be reachable is " +
                  format_bytes(model.least.bytes);
  }
  if (options_.measured) {
    if (point.planned.fits) {
      show(detail::concat("batch ", batch, ": ", options_.steps, " steps, planned and plain"));
      const MeasuredSteps measured = measure_plan(model, made);
      point.plain.step_ns = measured.plain_ns;
      point.planned.step_ns = measured.planned_ns;
      point.planned.peak_bytes = measured.peak_bytes;
    } else {
      point.plain.step_ns.reset();
    }
  }
  // Without a plan it would not run where the limit is: its time is of no use to anyone.
  if (!point.plain.fits) point.plain.step_ns.reset();
  done_ += 1;
  report_.batches.push_back(std::move(point));
  if (batch == report_.frontier_batch) frontier_ = std::make_unique<SweptModel>(std::move(model));
}

void Sweep::sweep_frontier() {
  if (frontier_ == nullptr) return;
  SweptModel& model = *frontier_;
  report_.frontier_plain_peak_bytes = model.plain_peak_bytes;
  report_.frontier_plain_step_ns = model.baseline.time_ns;
  std::vector<int64_t> budgets;
  for (const std::string& text : options_.budgets) {
    int64_t budget = parse_budget(text, model.plain_peak_bytes);
    // All of it and more: aligned addresses must fit too, as for a step (budget.h).
    if (text.ends_with('%') && budget >= model.plain_peak_bytes) {
      budget += static_cast<int64_t>(64 * model.graph.storages.size());
    }
    budgets.push_back(budget);
  }
  std::ranges::sort(budgets, std::greater());
  const auto repeated = std::ranges::unique(budgets);
  budgets.erase(repeated.begin(), repeated.end());
  // Strategies that do not look at the budget, and searches that agree, make the same plan again.
  std::map<std::vector<OpId>, MeasuredSteps> known;
  for (const std::string& strategy : options_.strategies) {
    for (const int64_t budget : budgets) {
      show(detail::concat("batch ", model.batch, ": ", strategy, " inside ", format_bytes(budget)));
      const Plan made = plan_at(model.graph, budget, strategy);
      FrontierPoint point{.strategy = strategy,
                          .budget_bytes = budget,
                          .step = {.fits = made.feasible, .peak_bytes = made.peak_bytes},
                          .recomputed_ops = count_extra(model.graph, made.order).recomputed_ops};
      if (!options_.measured) {
        point.step.step_ns = made.time_ns;
        point.time_ratio = static_cast<double>(made.time_ns) /
                           static_cast<double>(std::max<int64_t>(model.baseline.time_ns, 1));
      } else if (made.feasible) {
        auto found = known.find(made.order);
        if (found == known.end()) found = known.emplace(made.order, measure_plan(model, made)).first;
        point.step.step_ns = found->second.planned_ns;
        point.step.peak_bytes = found->second.peak_bytes;
        point.time_ratio = found->second.ratio;
        report_.frontier_plain_step_ns = found->second.plain_ns;
      }
      report_.frontier.push_back(std::move(point));
      done_ += 1;
    }
  }
}

// As it was captured, or between sizes that were. Below the smallest one it is captured: there an
// estimate would cut off what it takes to be negative.
Graph Sweep::graph_at(int64_t batch) {
  std::vector<SizedGraph> known;  // of the program that the largest one runs
  const SizedGraph& last = std::ranges::max(captured_, {}, &SizedGraph::size);
  for (const SizedGraph& each : captured_) {
    if (each.size == batch) return each.graph;
    if (!program_difference(each.graph, last.graph)) known.push_back(each);
  }
  const bool can = known.size() >= sizes_needed(Growth::affine) &&
                   batch > std::ranges::min(known, {}, &SizedGraph::size).size;
  return can ? interpolate(known, batch, Growth::affine) : graph_of(batch);
}

PlainRun Sweep::run_plainly(int64_t batch) {
  PlainRun run{.graph = graph_at(batch)};
  const Baseline baseline = keep_all_baseline(run.graph);
  run.peak_bytes = baseline.peak_bytes;
  run.step_ns = baseline.time_ns;
  const auto point = std::ranges::find(report_.batches, batch, &BatchPoint::batch);
  if (point != report_.batches.end()) run.peak_bytes = point->plain.peak_bytes.value_or(run.peak_bytes);
  return run;
}

PlannedRun Sweep::run_planned(int64_t batch, int64_t budget_bytes) {
  PlannedRun run{.graph = graph_at(batch)};
  const Plan made = plan_at(run.graph, budget_bytes, "auto");
  if (!made.feasible) return run;
  run.feasible = true;
  run.predicted_peak_bytes = run.measured_peak_bytes = made.peak_bytes;
  run.reserved_bytes = run.graph.external_bytes() + made.placement->arena_bytes;
  run.plan_time_ns = run.step_ns = made.time_ns;
  return run;
}

// Without coming near the end of the memory that there is: nobody has asked for this size.
bool Sweep::can_capture(int64_t batch) {
  return keep_all_baseline(graph_at(batch)).peak_bytes < detail::available_bytes("/") / 4;
}

// What was tried counts for more than what was searched for.
LargestBatch Sweep::largest(int64_t searched, SweptStep BatchPoint::*step) const {
  const bool tried = std::ranges::any_of(report_.batches, [&](const BatchPoint& point) {
    return point.batch == searched && !point.plain_estimated;
  });
  LargestBatch found{tried ? 0 : searched, !tried && searched > 0};
  for (const BatchPoint& point : report_.batches) {
    const bool fits = (point.*step).fits || point.plain.fits;
    if (fits && point.batch > found.batch) found = {point.batch, point.plain_estimated};
  }
  return found;
}

// The search of core/fit.h, in which a size is planned where remat fit would run it.
void Sweep::find_largest() {
  const SizedProgram program{
      .run_plainly = [this](int64_t batch) { return run_plainly(batch); },
      .run_planned = [this](int64_t batch, int64_t budget) { return run_planned(batch, budget); }};
  FitOptions options{.budget_bytes = report_.limit_bytes,
                     .plan_seconds = options_.time_limit_seconds,
                     .seed = static_cast<uint64_t>(options_.seed),
                     .progress = [this](const std::string& what) { show("largest batch: " + what); }};
  const int64_t most = models::find_model(options_.model.model).largest.batch;
  if (most > 0) options.largest = std::min(options.largest, most);
  Fit found;
  try {
    found = fit(program, options);
  } catch (const Error& error) {
    report_.next_reason = "no larger batch was searched for: " + without_verb(error.what());
    return;
  }
  if (options_.measured) {
    for (const int64_t batch : {found.plain.size, found.planned.size}) {
      const bool tried = std::ranges::count(report_.batches, batch, &BatchPoint::batch) > 0;
      if (batch > 0 && !tried && can_capture(batch)) sweep_batch(batch);
    }
  }
  report_.found_plain = largest(found.plain.size, &BatchPoint::plain);
  report_.found_planned = largest(std::max(found.plain.size, found.planned.size), &BatchPoint::planned);
  if (report_.found_planned->batch < found.planned.size) {
    report_.next_reason = detail::concat("batch ", found.planned.size, " was expected to fit, and did not");
  } else if (found.next_size > report_.found_planned->batch) {
    report_.next_reason = detail::concat("batch ", found.next_size, " does not fit: ", found.next_reason);
  }
}

}  // namespace

std::vector<int64_t> default_batches(const ModelOptions& model) {
  const int64_t largest = size_of(model).batch;
  std::vector<int64_t> batches;
  for (int64_t batch = 1; batch < largest; batch *= 2) batches.push_back(batch);
  batches.push_back(largest);
  return batches;
}

SweepReport sweep(const SweepOptions& options, const std::function<bool()>& interrupted) {
  return Sweep(options, interrupted).run();
}

}  // namespace remat
