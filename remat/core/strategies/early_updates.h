// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

// The same runs, each op of the update as early as the order lets it. A program updates all parameters when
// backward is over, and so do plans that only say what to compute again:
//
//   backward 2   backward 1   update 1   update 2          both gradients are there at once
//   backward 2   update 2   backward 1   update 1          one after the other
//
// An op comes as soon as what it reads is there at the right version and no later run reads what it writes over
// (re-runs of forward still read the parameter). None if no op would move.
std::optional<std::vector<OpId>> with_early_updates(const Graph& graph, std::span<const OpId> order);

// The graph with its ops in that order, for strategies that only look at the given one. Ops, and orders of them, are
// numbered anew.
class EarlyGraph {
 public:
  // None if no op would move.
  static std::optional<EarlyGraph> of(const Graph& graph);

  const Graph& graph() const { return graph_; }
  // An order of its ops as one of the original's.
  std::vector<OpId> original(std::span<const OpId> order) const;

 private:
  Graph graph_;
  std::vector<OpId> original_;  // by op
};

}  // namespace remat
