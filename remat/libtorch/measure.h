// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "remat/libtorch/tape.h"

namespace remat {

struct MeasureOptions {
  // About how long to go on replaying; at least three rounds are made, and no more once the medians
  // have settled.
  double seconds = 2.0;
  int max_rounds = 30;
  bool time_whole_step = true;  // after each round a step without timers; twice the time
  std::function<void()> poll = {};  // as ExecuteOptions::poll
};

struct Measurement {
  Graph graph;             // the recording's, with the time of every op: a median
  int64_t step_ns = 0;     // of the whole replayed step, without timers inside, if asked for: a median
  int rounds = 0;
};

// Times every op by replaying the step as it was recorded, in an arena, after warming up. Needs the
// memory of the plain step. Leaves parameters, buffers, gradients and generators as they were.
Measurement measure(const Recording& recording, const Batch& batch,
                    const MeasureOptions& options = {});

namespace detail {
class Runner;

// The same with a runner of some schedule of the recording, all of whose externals are bound by `bind`
// before every run and put back by `put_back` after it.
Measurement measure(const Recording& recording, Runner& runner, const MeasureOptions& options,
                    const std::function<void(Runner&)>& bind,
                    const std::function<void(Runner&)>& put_back);
}  // namespace detail

}  // namespace remat
