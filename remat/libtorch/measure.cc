// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/measure.h"

#include <algorithm>

#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/execute.h"

namespace remat {
namespace {

constexpr int kLeastRounds = 3;
constexpr int kEnoughSamples = 9;  // of a short op
constexpr int kRepeats = 4;

int64_t median(std::vector<int64_t> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

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
  Execution execution(recording, schedule, placement, make_arena(placement.arena_bytes));
  detail::Device& device = detail::cpu_device();

  execution.run(batch);  // touches every page, fills every cache
  execution.undo();
  const int64_t begin = device.now_ns();
  const auto elapsed_s = [&] { return static_cast<double>(device.now_ns() - begin) / 1e9; };
  std::vector<std::vector<int64_t>> samples(recording.graph.ops.size());
  std::vector<int64_t> steps;
  int rounds_made = 0;
  // A round with timers, then one without: what the timers cost, and what the neighbours do, shows.
  // Where time is short for many rounds, short ops are at least called several times in each.
  const auto round = [&](int repeats) {
    execution.run_timed(batch, samples, repeats);
    execution.undo();
    ++rounds_made;
    if (options.time_whole_step) {
      const int64_t start = device.now_ns();
      execution.run(batch);
      steps.push_back(device.now_ns() - start);
      execution.undo();
    }
  };
  round(0);
  const double rounds = std::max<double>(
      kLeastRounds, std::min<double>(options.max_rounds, options.seconds / elapsed_s()));
  const int repeats = rounds < kEnoughSamples ? kRepeats : 0;
  while (rounds_made < rounds) {
    round(repeats);
  }
  Measurement measured{.graph = recording.graph,
                       .step_ns = steps.empty() ? 0 : median(steps),
                       .rounds = rounds_made};
  for (size_t i = 0; i < samples.size(); ++i) {
    measured.graph.ops[i].time_ns = std::max<int64_t>(1, median(samples[i]));
  }
  return measured;
}

}  // namespace remat
