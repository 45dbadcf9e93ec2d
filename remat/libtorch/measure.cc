// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/measure.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "remat/core/moves.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/runner.h"

namespace remat {
namespace {

constexpr int kLeastRounds = 3;
constexpr int kEnoughSamples = 9;  // of a short op
constexpr int kRepeats = 4;
constexpr double kSettled = 0.01;  // a sum of medians that another round moves by less, ...
constexpr int kSettledRounds = 2;  // ... so often in a row: every second round leaves a median where it was

int64_t median(std::vector<int64_t> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Runs a step again and again: times by op, and of the whole step.
class Rounds {
 public:
  Rounds(std::function<void(const detail::Timing*)> run, size_t op_count)
      : run_(std::move(run)), samples_(op_count) {}

  void go(const MeasureOptions& options) {
    run_(nullptr);  // touches every page, fills every cache
    const int64_t begin = device_.now_ns();
    round(options, 0);
    const double elapsed_s = static_cast<double>(device_.now_ns() - begin) / 1e9;
    const double rounds = std::max<double>(
        kLeastRounds, std::min<double>(options.max_rounds, options.seconds / elapsed_s));
    // Where time is short for many rounds, short ops are at least called several times in each.
    const int repeats = rounds < kEnoughSamples ? kRepeats : 0;
    while (made_ < rounds && !(made_ >= kLeastRounds && settled())) {
      round(options, repeats);
    }
  }

  Measurement result(const Graph& graph) const {
    Measurement measured{
        .graph = graph, .step_ns = steps_.empty() ? 0 : median(steps_), .rounds = made_};
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (!samples_[i].empty()) {  // else it read packed bytes, under a first plan
        measured.graph.ops[i].time_ns = std::max<int64_t>(1, median(samples_[i]));
      }
    }
    add_moves(measured.graph);  // ops that read packed bytes take as long as the ops that they are
    return measured;
  }

 private:
  // Whether the last rounds have hardly changed what is known.
  bool settled() {
    int64_t sum_ns = 0;
    for (const std::vector<int64_t>& samples : samples_) {
      sum_ns += samples.empty() ? 0 : median(samples);
    }
    const auto change = static_cast<double>(std::abs(sum_ns - std::exchange(sum_ns_, sum_ns)));
    unmoved_ = change < kSettled * static_cast<double>(sum_ns) ? unmoved_ + 1 : 0;
    return unmoved_ >= kSettledRounds;
  }

  // A step with timers, then one without: what the timers cost, and what the neighbours do, shows.
  void round(const MeasureOptions& options, int repeats) {
    const detail::Timing timing{samples_, repeats};
    run_(&timing);
    ++made_;
    if (options.time_whole_step) {
      const int64_t start = device_.now_ns();
      run_(nullptr);
      steps_.push_back(device_.now_ns() - start);
    }
  }

  std::function<void(const detail::Timing*)> run_;
  detail::Device& device_ = detail::cpu_device();
  std::vector<std::vector<int64_t>> samples_;
  std::vector<int64_t> steps_;
  int64_t sum_ns_ = 0;  // of the medians after the round before
  int unmoved_ = 0;     // rounds in a row
  int made_ = 0;
};

// Replays add to the gradients that were there.
class GradientCopies {
 public:
  explicit GradientCopies(const Recording& recording) {
    for (const ExternalSource& source : recording.externals) {
      if (source.kind == ExternalSource::Kind::gradient) {
        const at::Tensor& parameter = recording.parameters[static_cast<size_t>(source.position)];
        const c10::Storage& storage = parameter.grad().storage();
        const auto* bytes = static_cast<const char*>(storage.data());
        copies_.emplace_back(storage, std::vector<char>(bytes, bytes + storage.nbytes()));
      }
    }
  }
  ~GradientCopies() {
    for (auto& [storage, copy] : copies_) {
      detail::cpu_device().copy(storage.mutable_data(), copy.data(),
                                static_cast<int64_t>(copy.size()));
    }
  }
  GradientCopies(const GradientCopies&) = delete;
  GradientCopies& operator=(const GradientCopies&) = delete;

 private:
  std::vector<std::pair<c10::Storage, std::vector<char>>> copies_;
};

}  // namespace

Measurement measure(const Recording& recording, const Batch& batch, const MeasureOptions& options) {
  const Schedule schedule = rewrite(recording.graph, given_order(recording.graph));
  const Placement placement = place(recording.graph, schedule);
  const GradientCopies gradients(recording);
  Execution execution(recording, schedule, placement, make_arena(placement.arena_bytes),
                      {.poll = options.poll});
  Rounds rounds(
      [&](const detail::Timing* timing) {
        if (timing != nullptr) {
          execution.run_timed(batch, timing->samples_ns, timing->repeats);
        } else {
          execution.run(batch);
        }
        execution.undo();
      },
      recording.graph.ops.size());
  rounds.go(options);
  return rounds.result(recording.graph);
}

Measurement detail::measure(const Recording& recording, Runner& runner, const MeasureOptions& options,
                            const std::function<void(Runner&)>& bind,
                            const std::function<void(Runner&)>& put_back) {
  Rounds rounds(
      [&](const Timing* timing) {
        runner.start();
        bind(runner);
        runner.time_with(timing);
        try {
          runner.run_rest();
        } catch (...) {
          runner.undo();
          throw;
        }
        put_back(runner);
      },
      recording.graph.ops.size());
  rounds.go(options);
  runner.time_with(nullptr);
  return rounds.result(recording.graph);
}

}  // namespace remat
