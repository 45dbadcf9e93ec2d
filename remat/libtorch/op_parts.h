// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/libtorch/trace.h"

// Ops over lists of tensors (foreach, fused optimizers) taken apart. One call that updates all
// parameters needs all gradients at once; as one call for each parameter,
//
//   _fused_sgd_([a, b], [da, db], …)   ──▶   _fused_sgd_([a], [da], …)   _fused_sgd_([b], [db], …)
//
// a's update can come before db exists. The program still makes the one call, which is matched as
// one; only the graph has the parts.
namespace remat::detail {

// An op of the graph as a part of an op of the trace.
struct OpPart {
  size_t op = 0;         // of the trace
  int32_t element = -1;  // of its lists; -1: all of them
  bool is_tile = false;  // some rows of it: see row_parts.h
  bool operator==(const OpPart&) const = default;
};

// A trace with ops taken apart where op_traits.cc says that this gives the same bits, and where it is
// known which part asked for which memory. Storages are those of the original.
struct PartedTrace {
  Trace trace;
  std::vector<OpPart> parts;  // by op of `trace`
};
PartedTrace take_apart(const Trace& trace);

// What a part gets of an argument of the whole call: its element of a list.
c10::IValue part_of_argument(const c10::IValue& whole, int32_t element);

}  // namespace remat::detail
