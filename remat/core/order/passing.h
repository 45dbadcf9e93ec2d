// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

// Which runs of an order may pass each other so that every run still takes each value from the same
// copy as before. An op *touches* things: it reads storages, and changes those that it updates,
// creates or has effects on. Two runs may pass each other unless one of them changes a thing that the
// other touches:
//
//     f2 reads a        f2 reads b        may pass        f2 reads a        f1 creates a        may not
//
// The classes of mutual_order.h are things too, which all their members change.
class Passing {
 public:
  explicit Passing(const Graph& graph);

  struct Touch {
    int32_t thing;
    bool changes;
  };
  std::span<const Touch> touches(OpId op) const;
  size_t thing_count() const { return stamp_of_.size(); }

  // How many runs the one at `from` can pass, later or earlier in the order.
  size_t reach(std::span<const OpId> order, size_t from, bool later);

 private:
  bool may_pass(OpId op) const;

  std::vector<int32_t> start_;  // by op, one more
  std::vector<Touch> touches_;
  // Of the run that asks for its reach: the stamp of things it touches, negative if it changes them.
  std::vector<int32_t> stamp_of_;
  int32_t stamp_ = 0;
};

}  // namespace remat
