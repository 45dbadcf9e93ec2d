// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

// The rewritten step: which op runs when, on which copy of each storage, and when a copy is freed.
//
// An *instance* is one copy of a storage. Externals have one each, there from the start. Every run
// of an op creates fresh instances of what the op creates; a recomputed storage therefore has
// several, told apart in text by a number: `a1` (the first), `a1#1`, `a1#2`, ... Packed and offloaded
// forms (moves.h) have instances too: `a1~`, `a1^`.

enum class InstanceId : int32_t {};
constexpr size_t index(InstanceId id) { return static_cast<size_t>(id); }
inline constexpr InstanceId kNoInstance = static_cast<InstanceId>(-1);

struct Instance {
  StorageId storage{};
  int32_t copy = 0;  // 0 for the first
  // The instance whose bytes this one takes over (reuse). That one ends with the step that creates
  // this one, without a free step of its own.
  InstanceId in_place_of = kNoInstance;
  bool operator==(const Instance&) const = default;
};

enum class StepKind : uint8_t {
  run,        // the op, for the first time: draws random numbers, changes externals
  recompute,  // the op again: generator state of its run, effects left alone
  free,       // an instance ends, and if it was offloaded, when it is written
  pack,       // a value is written in fewer bytes
  unpack,     // and comes back, in a fresh copy
  offload,    // the channel begins to write a value; until the copy is freed it may only be read
  prefetch,   // the channel begins to read it into a fresh copy, which is there from now on; who uses it waits
};
inline constexpr size_t kStepKindCount = 7;
std::string_view name(StepKind kind);
// Of the step that runs an op for the first time, or a move.
StepKind step_kind_of(const Graph& graph, OpId op);

struct ScheduleStep {
  StepKind kind = StepKind::run;
  OpId op{};                            // all but free: the op, or the move
  int32_t first_operand = 0;            // all but free: where its instances start
  InstanceId instance = kNoInstance;    // free
  bool operator==(const ScheduleStep&) const = default;
};

// Instances 0 ... external_count-1 are the externals, in the order of the graph. `operands` holds,
// for every step but a free, one instance for each of the op's reads, then its updates, then its
// creates, in the order in which the op lists them. An op that reads packed bytes is the move read_packed.
struct Schedule {
  std::vector<Instance> instances;
  std::vector<ScheduleStep> steps;
  std::vector<InstanceId> operands;

  std::span<const InstanceId> reads(const Graph& graph, const ScheduleStep& step) const;
  std::span<const InstanceId> updates(const Graph& graph, const ScheduleStep& step) const;
  std::span<const InstanceId> creates(const Graph& graph, const ScheduleStep& step) const;

  bool operator==(const Schedule&) const = default;
};

// `a1` or `a1#2`.
inline constexpr char kCopyMark = '#';
std::string instance_name(const Graph& graph, const Instance& instance);

}  // namespace remat
