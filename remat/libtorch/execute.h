// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/place.h"
#include "remat/core/schedule.h"
#include "remat/libtorch/tape.h"

namespace remat {

namespace detail {
class Arena;
class Channel;
}

// What a step gives back, as ordinary tensors. They keep their contents for as long as they are
// held; what is still held when the next step begins is moved out of the arena then.
struct StepResult {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;  // one for each parameter; undefined where the step made none
};

// Counted by the allocator while the step ran, not predicted.
struct StepCounts {
  int64_t peak_bytes = 0;           // externals and what was handed out of the arena
  int64_t outside_allocations = 0;  // requests that the placement did not foresee, ...
  int64_t outside_bytes = 0;        // ... which LibTorch's own allocator answered
  int64_t moved_bytes = 0;          // results of the step before that were still held
  int64_t offloaded_bytes = 0;      // written to the channel, ...
  int64_t waited_ns = 0;            // ... and the time spent waiting for it
};

struct ExecuteOptions {
  // Overwrites every block of the arena when it is freed, so that a read after it is seen.
  bool poison = false;
  // Called before every op for as long as undo() can put everything back: must be quick. What it throws
  // ends the step.
  std::function<void()> poll = {};
  // Called after every op. What it throws ends the step, which undo() may then not be able to put back.
  std::function<void()> after_op = {};
  // Where a schedule that offloads puts values; such a schedule is refused without it.
  std::shared_ptr<detail::Channel> channel = {};
};

// A value was not as the rule expects by which a plan packs it, or the channel to which it offloads
// failed: the step cannot go on, and nothing of it is lost if it is undone. A plan that does without the
// packed form, or without the channel, can be run instead.
class MoveFailed : public Error {
 public:
  MoveFailed(const std::string& message, std::optional<size_t> form) : Error(message), packed_form(form) {}
  std::optional<size_t> packed_form;  // of the graph; none: the channel
};

// Runs a schedule of a recorded step on real tensors, inside an arena, at the addresses of a
// placement. Everything is prepared once: a step then only calls kernels. Not for two threads at
// once; several steps may share an arena, one after the other.
class Execution {
 public:
  // The recording must outlive it. Throws Error if the arena is smaller than the placement.
  Execution(const Recording& recording, const Schedule& schedule, const Placement& placement,
            std::shared_ptr<detail::Arena> arena, const ExecuteOptions& options = {});
  ~Execution();
  Execution(Execution&&) noexcept;
  Execution& operator=(Execution&&) noexcept;

  // Throws Error if the batch does not look like the captured one. If an op throws, externals and
  // generators are put back, what it threw comes out, and the next call works.
  StepResult run(const Batch& batch);

  // As run, and appends to samples_ns, by op of the graph, the time that its kernel took. Ops that are
  // short and give the same again when called again are called `repeats` times more.
  StepResult run_timed(const Batch& batch, std::vector<std::vector<int64_t>>& samples_ns,
                       int repeats = 0);

  // After a run: gives the externals that it wrote, except gradients, and the generators the
  // contents they had before it.
  void undo();

  const StepCounts& counts() const;  // of the last run
  // Of the last run: resident bytes, counted by the allocator while each step of the schedule ran that is no
  // free, in their order. What simulate() predicts is its timeline without the frees.
  const std::vector<int64_t>& measured_bytes() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// An arena for placements of up to so many bytes.
std::shared_ptr<detail::Arena> make_arena(int64_t bytes);

}  // namespace remat
