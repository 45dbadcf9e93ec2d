// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/effort.h"
#include "remat/core/graph.h"

namespace remat {

// The exact optimum of small graphs, by best-first search (A*) over every plan that the plan language
// can express. A state is which ops have run and how many copies of each value are there; a step
// from one to another runs an op, for the first time or again:
//
//     ran f1        f2       ran f1 f2     f3 does not fit      ran f1 f2 f3
//     there a1   ────────▶   a1 a2      ────────────────────▶   a2 a3     or   a1 a3
//                                        forget a1, or a2
//
// Copies are forgotten only when an op does not fit otherwise, and then no more than needed. A state
// that holds a superset of another's copies, has run the same ops and took no more time dominates it:
// the other is passed over. Time is that of
// re-runs only, since every plan runs every op once. The state with the least time, so far and yet to
// come (what is missing must be made again), goes first; of equal ones, the one that is further on.

// It looks at no more values than these, and at no more ops than a word has bits.
inline constexpr size_t kMostStateValues = 64;

enum class Freedom : uint8_t {
  given_order,  // first runs in the given order, re-runs anywhere and as often as it takes
  any_order,    // everything that is legal
};

struct StateSearchOptions {
  Freedom freedom = Freedom::any_order;
  // Gives up as soon as it is proven that re-runs take so long.
  int64_t enough_extra_ns = std::numeric_limits<int64_t>::max();
};

struct StateSearchResult {
  bool complete = false;  // false: gave up, or too many ops or values
  bool feasible = false;  // if complete: whether any plan fits
  int64_t time_ns = 0;    // if feasible: of the fastest plan
  std::vector<OpId> order;
  // Proven, complete or not: if a plan fits, re-runs take at least so long.
  int64_t least_extra_ns = 0;
};

// Demands ops that offer each result no more than one place to take (reuse): among several, rewrite
// takes the first that dies, and the search would take the best. Deterministic. Gives up when the effort is
// exhausted: a state takes about 300 bytes and three microseconds of work.
StateSearchResult search_states(const Graph& graph, int64_t budget_bytes, Effort& effort,
                                const StateSearchOptions& options = {});

}  // namespace remat
