// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "remat/libtorch/op_parts.h"
#include "remat/libtorch/trace.h"

namespace remat::detail {

// A trace as a graph (times still 0) with the tape that goes with it, and how the numbers of the two
// correspond. Views and needless ops are left out; ops that update many parameters, or a large one,
// stand there in parts (op_parts.h, row_parts.h).
//
// The graph's order is the program's, but for guards (ops that give the host a value): they stand as
// early as what they read allows, since what the program does next waits for them. Nothing that
// stands behind a guard may run before it:
//
//   program   conv  fc  loss  d_loss  d_fc  d_conv  read(loss)  step+=1  read(step)  update
//   graph     conv  fc  loss  read(loss)  step+=1  read(step)  d_loss  d_fc  d_conv  update
//
// which is said by an external without bytes for each guard, that the guard changes and everything
// behind it reads.
struct TraceGraph {
  Recording recording;  // without parameters, batch, loss and gradients
  std::vector<std::vector<OpId>> ops_of;   // by op of the trace: its parts; none for views
  std::vector<OpPart> part_of;             // by op of the graph
  std::vector<StorageId> id_of;            // by storage of the trace
  std::vector<std::optional<OpId>> access_of;  // by storage: the op that gives its bytes to the host

  TensorView renumbered(const SeenView& view) const;
  // Digests of what ops of the trace created, by op of the graph; of a tile nothing is known.
  std::vector<std::vector<uint64_t>> by_part(const std::vector<std::vector<uint64_t>>& digests) const;
};

// `outputs` survive the step. Without `tiles` large updates are left whole.
TraceGraph to_graph(const Trace& trace, const std::vector<StorageNumber>& outputs, bool tiles = true);

}  // namespace remat::detail
