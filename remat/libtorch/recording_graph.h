// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "remat/libtorch/trace.h"

namespace remat::detail {

// A trace as a graph (times still 0) with the tape that goes with it, and how the numbers of the two
// correspond. Views and needless ops are left out.
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
  std::vector<std::optional<OpId>> op_of;  // by op of the trace; none for views
  std::vector<StorageId> id_of;            // by storage of the trace
  std::vector<std::optional<OpId>> access_of;  // by storage: the op that gives its bytes to the host

  TensorView renumbered(const SeenView& view) const;
};

// `outputs` survive the step.
TraceGraph to_graph(const Trace& trace, const std::vector<StorageNumber>& outputs);

}  // namespace remat::detail
