// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "remat/core/place.h"
#include "remat/core/schedule.h"
#include "remat/libtorch/arena.h"
#include "remat/libtorch/supply.h"
#include "remat/libtorch/tape.h"

// A schedule made ready to run: every tensor exists already, at the placement's address, so that a
// step only calls kernels.
namespace remat::detail {

constexpr int kNoState = -1;

// Where a created storage comes out of the op, and where it must be.
struct ExpectedResult {
  TensorPlace place;
  char* address = nullptr;
  int64_t bytes = 0;
  int64_t resident_bytes = 0;  // beyond what it takes over from a dying input
};

// A pack, unpack, offload or prefetch, or a run of an op that reads packed bytes.
struct PreparedMove {
  StepKind kind{};
  size_t packed_form = 0;            // of the graph: pack, unpack, run, recompute
  const PackFormat* format = nullptr;
  const PackedReader* reader = nullptr;  // run, recompute
  const char* from = nullptr;        // for a reader, the packed bytes
  const char* other = nullptr;       // of a reader: its other argument
  char* to = nullptr;
  int64_t bytes = 0;                 // of a transfer, rounded up to the alignment
  int64_t channel_offset = 0;
  InstanceId transferred{};          // whose transfer it is
  int64_t created_bytes = 0;         // resident from now on
};

// One step of the schedule that is no free, ready to be called.
struct PreparedCall {
  const c10::OperatorHandle* op = nullptr;
  c10::DispatchKeySet keys;
  std::vector<c10::IValue> arguments;
  std::vector<ExpectedRequest> requests;
  std::vector<ExpectedResult> results;
  size_t op_index = 0;  // of a move: the op that made the value
  int64_t workspace_bytes = 0;  // resident while it runs
  int64_t freed_bytes = 0;      // by the frees that follow
  std::vector<std::pair<char*, int64_t>> freed;
  int state = kNoState;  // of the generator: saved by the run, used by the recompute
  int generator_argument = -1;
  bool recompute = false;
  bool repeatable = false;  // called again at once, it gives the same
  bool reads_on_host = false;  // a guard: the host waits for what it returns
  bool is_access = false;      // the host wants the bytes that it is given
  bool grad_mode = false;
  std::optional<PreparedMove> move;  // in place of `op`
  // Transfers that must have ended before it begins, and before what it frees is free.
  std::vector<InstanceId> waits_for;
  std::vector<InstanceId> frees_wait_for;
};

struct PreparedStep {
  // By external of the graph: storages that the calls' arguments lie on. Their addresses are set
  // before a step runs.
  std::vector<c10::Storage> externals;
  std::vector<PreparedCall> calls;
  std::vector<InstanceId> outputs;  // by output of the graph
  std::vector<InstanceId> outputs_wait_for;  // those of them that the channel is still bringing back at the end
  size_t state_count = 0;           // of generator states that calls refer to
  std::vector<at::Generator> generators;  // that the step draws from
  size_t instance_count = 0;
  int64_t channel_bytes = 0;        // 0: nothing is offloaded
};

// The arena and the recording must outlive it.
PreparedStep prepare(const Recording& recording, const Schedule& schedule,
                     const Placement& placement, const Arena& arena);

}  // namespace remat::detail
