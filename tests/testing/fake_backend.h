// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"

namespace remat::testing {

// A device for tests: ops are hashes over small arrays of integers, so that any wrong input, order
// or generator state changes the results. It trusts the schedule and shares no code with rewrite,
// simulate and verify.
//
// Bytes are counted by a ledger of its own, as an allocator would: each array counts for the bytes
// of its storage, a workspace counts while its op runs, and where a result takes an input's place
// the input's very array is handed over and only grown before, or shrunk after, the op. A packed array
// counts for its packed bytes and holds other words, which only unpack and the ops that can read them
// understand; one on the channel counts for none. What the channel writes is looked at again when the
// array is freed: if it has changed meanwhile, or its place was taken, garbage was written.

using Words = std::vector<uint64_t>;

struct FakeOutcome {
  std::map<std::string, Words> outputs;    // by storage; internal ones
  std::map<std::string, Words> externals;  // by storage
  uint64_t generator_state = 0;
  int64_t peak_bytes = 0;
  int64_t left_bytes = 0;  // allocated when the step is over
};

// Runs the ops as given, each once, and frees nothing: what the step is meant to compute.
FakeOutcome run_plain(const Graph& graph);

// Executes the schedule. Throws std::logic_error where it touches an array that is not there.
FakeOutcome execute_fake(const Graph& graph, const Schedule& schedule);

}  // namespace remat::testing
