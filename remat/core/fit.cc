// SPDX-License-Identifier: Apache-2.0
#include "remat/core/fit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/plan.h"
#include "remat/core/units.h"

namespace remat {
namespace {

using detail::concat;

// Runs of either kind. Two or three are the rule; more mean that predictions are off by a little
// each time.
constexpr int kMostRuns = 8;
// Recordings in search of sizes at which the program is the same.
constexpr int kMostRecordings = 24;

// The largest size from `low` to `high` for which `holds`; `low` is taken to be one. Looks at
// `hint` first and doubles from there.
template <typename Holds>
int64_t last_where(int64_t low, int64_t high, int64_t hint, const Holds& holds) {
  for (int64_t probe = std::max(low + 1, hint); low < high; probe = 2 * low) {
    probe = std::min(probe, high);
    if (!holds(probe)) {
      high = probe - 1;
      break;
    }
    low = probe;
  }
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The same from above, where `high` is likely to hold.
template <typename Holds>
int64_t last_where_from_above(int64_t low, int64_t high, const Holds& holds) {
  int64_t fails = high + 1;
  for (int64_t step = 1, probe = high; probe > low; step *= 2) {
    if (holds(probe)) return last_where(probe, fails - 1, probe + 1, holds);
    fails = probe;
    probe = std::max(low, probe - step);
  }
  return last_where(low, fails - 1, low + 1, holds);
}

// Sizes inside of the search are counted in multiples of options.multiple.
class Search {
 public:
  Search(const SizedProgram& program, const FitOptions& options)
      : program_(program),
        options_(options),
        first_((options.smallest + options.multiple - 1) / options.multiple),
        last_(options.largest / options.multiple) {
    if (first_ > last_) {
      throw Error(concat("[fit] there is no multiple of ", options.multiple, " from ",
                         options.smallest, " to ", options.largest, "; expected a size to try"));
    }
  }

  Fit run() {
    record_small_sizes();
    fit_plainly();
    fit_planned();
    return std::move(fit_);
  }

 private:
  using Size = int64_t;

  int64_t in_units(Size size) const { return size * options_.multiple; }
  void say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }
  size_t needed() const { return sizes_needed(options_.growth); }

  const PlainRun& run_plainly(Size size) {
    const auto found = plain_runs_.find(size);
    if (found != plain_runs_.end()) return found->second;
    say(concat("recording size ", in_units(size)));
    ++fit_.plain_runs;
    PlainRun run = program_.run_plainly(in_units(size));
    learn(size, run.graph);
    return plain_runs_.emplace(size, std::move(run)).first->second;
  }

  // A recorded graph takes the place of its estimate. Some programs change with their size (a
  // dimension of 1 needs no copy); what is searched for is large, so the program of the larger size
  // counts.
  void learn(Size size, const Graph& graph) {
    predictions_.clear();
    if (known_.empty() || !program_difference(known_.front().graph, graph)) {
      const auto same = [&](const SizedGraph& each) { return each.size == size; };
      std::erase_if(known_, same);
      known_.push_back({size, graph});
    } else if (size > std::ranges::max(known_, {}, &SizedGraph::size).size) {
      other_program_ = std::ranges::max(known_, {}, &SizedGraph::size).size;
      known_ = {{size, graph}};
    } else {
      other_program_ = std::max(other_program_, size);
    }
  }

  void record_small_sizes() {
    const Size start = std::clamp<Size>(2, first_, last_);
    for (size_t i = 1; i <= needed(); ++i) {
      run_plainly(std::clamp(start * static_cast<Size>(i), first_, last_));
    }
    record_until_enough();
  }

  // Until as many sizes of one program are known as interpolating takes.
  void record_until_enough() {
    const auto all = static_cast<size_t>(last_ - first_ + 1);
    while (known_.size() < std::min(needed(), all)) {
      const auto [smallest, largest] = std::ranges::minmax(known_, {}, &SizedGraph::size);
      const Size below = std::max(other_program_, first_ - 1);
      const Size next = smallest.size - below > 1 ? below + (smallest.size - below) / 2
                                                  : largest.size + 1;
      if (next > last_ || fit_.plain_runs >= kMostRecordings) {
        throw Error(concat("[fit] the program is another one at sizes up to ",
                           in_units(other_program_), " than at ", in_units(largest.size), " (",
                           difference_below(largest.graph),
                           "); expected one that calls the same ops at ", needed(), " sizes up to ",
                           options_.largest));
      }
      run_plainly(next);
    }
  }

  std::string difference_below(const Graph& graph) const {
    const auto other = plain_runs_.find(other_program_);
    if (other == plain_runs_.end()) return "a recorded step of that size";
    return program_difference(other->second.graph, graph).value_or("the same");
  }

  Graph graph_at(Size size) const {
    const auto found = std::ranges::find(known_, size, &SizedGraph::size);
    return found != known_.end() ? found->graph : interpolate(known_, size, options_.growth);
  }

  // What is expected of a size, worked out when it is asked for.
  struct Prediction {
    std::optional<int64_t> floor_bytes;
    std::optional<bool> fits;
    std::string reason;  // if it does not
  };

  int64_t floor_at(Size size) {
    Prediction& prediction = predictions_[size];
    if (!prediction.floor_bytes) {
      say(concat("the least that size ", in_units(size), " needs"));
      const PlanOptions limits{.time_limit_seconds = options_.plan_seconds};
      prediction.floor_bytes = floor(graph_at(size), limits).bytes;
    }
    return *prediction.floor_bytes;
  }

  bool fits_at_floor(Size size) {
    if (floor_at(size) <= options_.budget_bytes) return true;
    predictions_[size].reason =
        concat("the least known peak, ", format_bytes(floor_at(size)), ", is above the budget");
    return false;
  }

  bool plan_fits(Size size) {
    Prediction& prediction = predictions_[size];
    if (!prediction.fits) {
      prediction.fits = fits_at_floor(size) && find_plan(size, prediction.reason);
    }
    return *prediction.fits;
  }

  bool find_plan(Size size, std::string& reason) {
    say(concat("planning size ", in_units(size)));
    ++fit_.plans;
    const Graph graph = graph_at(size);
    const Plan made = plan(graph, {.budget_bytes = options_.budget_bytes,
                                   .placed = true,
                                   .time_limit_seconds = options_.plan_seconds,
                                   .seed = options_.seed});
    if (!made.feasible) {
      reason = concat("no plan with addresses was found in the budget, close to the least known ",
                      "peak of ", format_bytes(floor_at(size)));
      return false;
    }
    return cheap_enough(graph, made.time_ns, reason);
  }

  bool cheap_enough(const Graph& graph, int64_t time_ns, std::string& reason) const {
    const auto plain_ns = static_cast<double>(keep_all_baseline(graph).time_ns);
    const double most_ns = options_.most_time * plain_ns;
    if (static_cast<double>(time_ns) <= most_ns) return true;
    reason = concat("the best plan takes ", static_cast<double>(time_ns) / plain_ns,
                    " times as long as the plain step");
    return false;
  }

  // Runs what `predict(best, last)` says, from best (which ran) to last, until it says nothing new.
  template <typename Predict, typename Try>
  Size search(Size best, const Predict& predict, const Try& run_at) {
    Size last = last_;
    for (int runs = 0; runs < kMostRuns; ++runs) {
      record_until_enough();
      const Size size = predict(best, last);
      if (size <= best) break;
      if (run_at(size)) {
        best = size;
      } else {
        last = size - 1;
      }
    }
    return best;
  }

  void fit_plainly() {
    const auto predicted = [this](Size size) {
      return keep_all_baseline(graph_at(size)).peak_bytes <= options_.budget_bytes;
    };
    const Size best = search(
        first_ - 1,
        [&](Size from, Size to) { return last_where(from, to, from + 1, predicted); },
        [&](Size size) { return run_plainly(size).peak_bytes <= options_.budget_bytes; });
    if (best < first_) return;
    const PlainRun& run = run_plainly(best);
    fit_.plain = {.size = in_units(best),
                  .predicted_peak_bytes = keep_all_baseline(run.graph).peak_bytes,
                  .measured_peak_bytes = run.peak_bytes,
                  .reserved_bytes = run.peak_bytes,
                  .step_ns = run.step_ns};
  }

  void fit_planned() {
    const Size plain = fit_.plain.size / options_.multiple;
    const auto predict = [&](Size from, Size to) {
      const Size most = last_where(from, to, plain, [&](Size size) { return fits_at_floor(size); });
      return last_where_from_above(from, most, [&](Size size) { return plan_fits(size); });
    };
    const Size best = search(first_ - 1, predict, [&](Size size) { return run_planned(size); });
    if (best < first_) {
      fit_.floor_bytes = floor_at(first_);
    } else {
      say_why_no_more(best);
    }
  }

  bool run_planned(Size size) {
    say(concat("running size ", in_units(size), " inside the budget"));
    ++fit_.planned_runs;
    const PlannedRun run = program_.run_planned(in_units(size), options_.budget_bytes);
    learn(size, run.graph);
    std::string reason;
    if (!run.feasible) {
      failures_[size] = "no plan was found for the step as it was recorded there";
    } else if (std::max(run.reserved_bytes, run.measured_peak_bytes) > options_.budget_bytes) {
      failures_[size] = concat("it ran, with a peak of ", format_bytes(run.measured_peak_bytes));
    } else if (!cheap_enough(run.graph, run.plan_time_ns, reason)) {
      failures_[size] = reason;
    } else {
      fit_.planned = {.size = in_units(size),
                      .predicted_peak_bytes = run.predicted_peak_bytes,
                      .measured_peak_bytes = run.measured_peak_bytes,
                      .reserved_bytes = run.reserved_bytes,
                      .step_ns = run.step_ns};
      return true;
    }
    return false;
  }

  void say_why_no_more(Size best) {
    if (best == last_) return;
    record_until_enough();
    const Size next = best + 1;
    fit_.next_size = in_units(next);
    fit_.next_floor_bytes = floor_at(next);
    const auto failure = failures_.find(next);
    if (failure != failures_.end()) {
      fit_.next_reason = failure->second;
    } else if (plan_fits(next)) {
      fit_.next_reason = concat("not tried: ", kMostRuns, " sizes were run before");
    } else {
      fit_.next_reason = predictions_[next].reason;
    }
  }

  const SizedProgram& program_;
  const FitOptions& options_;
  const Size first_;
  const Size last_;
  std::vector<SizedGraph> known_;  // of one program
  Size other_program_ = 0;         // the largest size known at which the program is another one
  std::map<Size, PlainRun> plain_runs_;
  std::map<Size, Prediction> predictions_;  // of what is known now
  std::map<Size, std::string> failures_;    // sizes that were run and are none
  Fit fit_;
};

void check(const FitOptions& options) {
  if (options.budget_bytes < 0) {
    throw Error(
        concat("[fit] a budget of ", options.budget_bytes, " bytes; expected zero or more"));
  }
  if (options.smallest < 1 || options.multiple < 1 || options.largest > kLargestProgramSize) {
    throw Error(concat("[fit] sizes from ", options.smallest, " to ", options.largest,
                       " in multiples of ", options.multiple, "; expected 1 to ",
                       kLargestProgramSize));
  }
  if (!(options.most_time >= 1)) {
    throw Error(concat("[fit] at most ", options.most_time,
                       " times the plain time; expected 1 or more"));
  }
}

}  // namespace

Fit fit(const SizedProgram& program, const FitOptions& options) {
  check(options);
  return Search(program, options).run();
}

}  // namespace remat
