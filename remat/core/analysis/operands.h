// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

// What ops need while they run, for exact methods, which reason about values instead of copies.
// Externals are always resident: none of these count them.

// The values that the op reads or updates, without externals and without repeats.
std::vector<Value> internal_inputs(const Graph& graph, const Op& op);

// Operands, results and workspace, nothing shared.
int64_t bytes_while_running(const Graph& graph, const Op& op);

// What is counted once if the result takes the place of the source; 0 where that is an external.
int64_t shared_bytes(const Graph& graph, const Reuse& reuse);

// The value that the op reads of a reuse's source. Demands a reuse of that op.
Value source_of(const Op& op, const Reuse& reuse);

// The op that makes a value: its creator, or the change to that version. Demands a value that the step
// makes, not an external as it is given.
OpId maker(const Graph& graph, const Value& value);

// The values of internal storages in a row: all versions of the first, of the second, and so on.
class ValueNumbers {
 public:
  explicit ValueNumbers(const Graph& graph);

  size_t size() const { return values_.size(); }
  const Value& operator[](size_t number) const { return values_[number]; }
  // Demands a value of an internal storage.
  size_t of(const Value& value) const {
    return first_[index(value.storage)] + static_cast<size_t>(value.version);
  }
  // How many copies can be of use at once. Those beyond the first serve to be updated: one for each
  // version to come, since a copy that is there at that version already does as well.
  int32_t most_copies(size_t number) const { return most_copies_[number]; }

 private:
  std::vector<size_t> first_;  // by storage
  std::vector<Value> values_;
  std::vector<int32_t> most_copies_;
};

}  // namespace remat
