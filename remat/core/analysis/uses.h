// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "remat/core/graph.h"

namespace remat {

// Which ops touch a storage (read or update it), in the given order; the creator is not among them.
struct Uses {
  std::vector<std::vector<OpId>> of;  // by storage

  const std::vector<OpId>& operator[](StorageId id) const { return of[index(id)]; }
};
Uses uses_of(const Graph& graph);

// The op at which the step turns round: the first that is not in forward or, in a graph of one
// phase only, the op at which keeping everything needs the most. Values made before it and needed
// from it on are what there is to decide about.
OpId turning_point(const Graph& graph);

// Whether none of the ops that make the value, its creator and its updates, forbids a re-run.
bool can_be_made_again(const Graph& graph, const Value& value);

// An activation that lies idle across the turning point and can be made again.
struct Candidate {
  StorageId storage{};
  OpId last_before{};  // its last use (or its creator) before the turning point
  OpId first_after{};  // its first use from the turning point on
  OpId last_after{};   // its last use
  int32_t version = 0;  // that it has while idle
};

// In order of creation. Leaves out storages of no bytes, outputs, what a re-run may not touch, and
// what is needed again at once, so that forgetting it could free nothing.
std::vector<Candidate> candidates_of(const Graph& graph, const Uses& uses, OpId turning_point);

}  // namespace remat
