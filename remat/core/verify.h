// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"

namespace remat {

// The independent checker. It shares no code with rewrite and simulate and is plain and slow on
// purpose: it runs the schedule on *terms* instead of numbers and compares with the graph run in
// its given order.
//
// A term says how a value was made: op, which of its results, the terms of its inputs, and for a
// random op the state of the generator. Equal terms mean equal bits. With `relu_` updating a in
// place and `drop` random,
//
//     run conv creates=a             a = conv(x, w)
//     run relu_ updates=a            a = relu_(conv(x, w))
//     run drop reads=a               m = drop(relu_(conv(x, w)), g)   the generator g becomes drop(g)
//     recompute conv creates=a#1     a#1 = conv(x, w)
//     recompute drop reads=a#1       wrong_version: a#1 lacks relu_; the generator would be g again
//
// A packed or offloaded form holds the term of what was packed or offloaded, and gives just that back. Only
// the value that a packed form was made for can be packed.

enum class ViolationKind : uint8_t {
  malformed,        // tables and operand ranges that do not fit the graph
  unknown_op,       // a step names an op, or an instance, that does not exist
  wrong_operand,    // an operand is a copy of another storage than the op names
  read_missing,     // an operand is not resident: never created, freed, or its place was taken
  wrong_version,    // an operand is resident but holds another value than in the given order
  created_twice,    // an instance is created while it exists, or existed already
  run_twice,        // `run` of an op that has run
  recompute_first,  // `recompute` of an op that has not run yet
  once_recomputed,  // `recompute` of a `once` op, or of one that updates an external
  order_changed,    // random, once or effect ops first run in another mutual order
  bad_reuse,        // a result takes a place that the graph does not allow
  bad_free,         // a free of an external, of an output's last copy, or of what is not resident
  missing_free,     // something internal that is not an output survives the step
  op_missing,       // an op of the graph never runs
  output_wrong,     // an output is missing or another term than in the given order
  external_wrong,   // an external, or the generator, becomes another term
  over_budget,      // more bytes are resident at a step than the budget
  write_disturbed,  // a copy that is being offloaded is updated, offloaded again or gives its place away
};
inline constexpr size_t kViolationKindCount = 18;
std::string_view name(ViolationKind kind);

struct Violation {
  ViolationKind kind{};
  size_t step = 0;  // position in schedule.steps, 0 for malformed tables; steps.size() at the end
  std::string op;   // the op's name; the storage's or instance's where no op is to blame
  std::string reason;  // a sentence: what was found, what was expected
};

// The first violation, or none: the schedule computes the same bits within the budget. A number that
// names nothing is reported before anything that a step does wrong. Never throws
// for what a schedule holds: anything odd in it is a violation. The graph must be one that
// GraphBuilder made. Linear in the length of the schedule.
std::optional<Violation> verify(const Graph& graph, const Schedule& schedule, int64_t budget_bytes);

}  // namespace remat
