// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remat/libtorch/arena.h"
#include "remat/libtorch/channel.h"
#include "remat/libtorch/execute.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/prepared_step.h"
#include "remat/libtorch/rng.h"

namespace remat::detail {

// Samples of the times that ops took.
struct Timing {
  std::vector<std::vector<int64_t>>& samples_ns;  // by op
  int repeats = 0;  // of short ops that give the same again when called again
};

// Runs a prepared schedule, as a whole or as far as some op whose result the host waits for:
//
//   start();  bind(x, ...);  run_until(read);  bind(w, ...);  set_argument(...);  run_rest();
//
// An external must be bound and an argument set before an op that uses it runs.
class Runner {
 public:
  // The recording must outlive it. Throws Error if the arena is smaller than the placement, and MoveFailed
  // if the channel has not the room that the placement needs.
  Runner(const Recording& recording, const Schedule& schedule, const Placement& placement,
         std::shared_ptr<Arena> arena, const ExecuteOptions& options);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void start();
  void bind(StorageId external, void* address);
  // Another constant for an op, from now on.
  void set_argument(OpId op, size_t position, const c10::IValue& value);

  // As far as the first run of an op; its results. They are valid until the runner goes on. None if
  // a result has another number of bytes than it was recorded with: nothing but undo is possible
  // then.
  std::optional<Values> run_until(OpId op);
  // The results of the op that run_until ran, of whatever size.
  Values last_read() const { return read_; }
  void run_rest();

  // Takes the time of every op from now on; null: of none. It must outlive the runs.
  void time_with(const Timing* timing) { timing_ = timing; }

  // Called when the op has run that gives the host the bytes of a storage, before they are freed.
  void on_access(std::function<void(OpId)> deliver) { deliver_ = std::move(deliver); }

  // Compares what ops make with digests (by op: of the storages it creates, then of those it
  // updates; 0 where nothing is known). The first op that differed, after run_rest.
  void compare_with(const std::vector<std::vector<uint64_t>>* digests) { expected_ = digests; }
  std::optional<OpId> first_difference() const { return first_difference_; }

  // Gives the externals that are backed up, and generators, the contents they had at the start.
  void undo();
  // The op that runs next, or was running when one threw.
  OpId next_op() const;
  // Whether anything ran since the start.
  bool started() const { return next_call_ > 0; }
  // Whether undo() can still put everything back: no op has begun that writes what is not backed up.
  bool can_undo() const { return !lasting_began_; }

  // Where an output's bytes are after the step, as an offset of the arena.
  int64_t output_offset(size_t output) const { return output_offsets_[output]; }
  // Where the bytes of an internal storage are that the op uses or makes.
  void* address_in(OpId op, StorageId storage) const;

  const StepCounts& counts() const { return supply_.counts; }
  StepCounts& counts() { return supply_.counts; }
  // What the allocator counted while each step of the schedule ran that is no free, in their order; 0 for
  // those that have not run since the start.
  const std::vector<int64_t>& measured_bytes() const { return measured_bytes_; }
  Arena& arena() { return *arena_; }

 private:
  void run_calls(size_t end);
  void back_up();
  bool lasts(const PreparedCall& call) const;
  void call_timed(const PreparedCall& call, const Timing& timing);
  void call_once(const PreparedCall& call);
  void call_move(const PreparedMove& move);
  void check_readers() const;
  void wait(std::span<const InstanceId> instances);
  void invoke(const PreparedCall& call);
  void invoke_random(const PreparedCall& call);
  bool check_results(const PreparedCall& call);
  void compare(const PreparedCall& call);
  void free_after(const PreparedCall& call);

  const Recording& recording_;
  std::shared_ptr<Arena> arena_;
  ExecuteOptions options_;

  PreparedStep step_;
  std::vector<std::vector<size_t>> calls_of_;  // by op; the first is its run
  std::vector<int64_t> output_offsets_;        // by output of the graph
  static constexpr Channel::Ticket kNoTicket = -1;
  std::vector<Channel::Ticket> tickets_;       // by instance: of its transfer, or kNoTicket
  std::vector<const PreparedCall*> readers_;   // of packed bytes
  size_t next_call_ = 0;
  size_t first_lasting_call_ = 0;  // that writes what undo() does not put back
  bool lasting_began_ = false;     // since the start
  const PreparedCall* waiting_ = nullptr;  // whose results the host may still read
  bool shape_changed_ = false;

  struct Backup {
    size_t external;
    std::vector<char> bytes;
    bool taken = false;
  };
  std::vector<Backup> backups_;
  std::vector<bool> bound_;                    // by external
  std::vector<GeneratorState> states_before_;  // the step, by generator
  std::vector<GeneratorState> states_;         // before the ops that are recomputed
  std::vector<GeneratorState> states_after_;   // of those that take no generator
  at::Generator replayed_;
  torch::jit::Stack stack_;
  torch::jit::Stack read_;  // results of the op that run_until ran
  Supply supply_;
  const Timing* timing_ = nullptr;
  std::vector<int64_t> measured_bytes_;  // by call
  const std::vector<std::vector<uint64_t>>* expected_ = nullptr;
  std::optional<OpId> first_difference_;
  std::function<void(OpId)> deliver_;
};

}  // namespace remat::detail
