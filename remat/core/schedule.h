// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

// The rewritten step: which op runs when, on which copy of each storage, and when a copy is freed.
//
// An *instance* is one copy of a storage. Externals have one each, there from the start. Every run
// of an op creates fresh instances of what the op creates; a recomputed storage therefore has
// several, told apart in text by a number: `a1` (the first), `a1#1`, `a1#2`, ...

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
  free,       // an instance ends
};

struct ScheduleStep {
  StepKind kind = StepKind::run;
  OpId op{};                            // run, recompute
  int32_t first_operand = 0;            // run, recompute: where the op's instances start
  InstanceId instance = kNoInstance;    // free
  bool operator==(const ScheduleStep&) const = default;
};

// Instances 0 ... external_count-1 are the externals, in the order of the graph. `operands` holds,
// for every run and recompute, one instance for each of the op's reads, then its updates, then its
// creates, in the order in which the op lists them.
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
