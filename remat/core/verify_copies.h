// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"
#include "remat/core/terms.h"

namespace remat::detail {

// What is in memory while verify runs a schedule, and what each copy holds. Refers to its graph and its schedule, whose
// numbers must all name something.
class Copies {
 public:
  enum class State : uint8_t { not_created, resident, freed, taken };
  struct Copy {
    State state = State::not_created;
    Term content = -1;
    Term within = -1;      // of a packed or offloaded form: the value that it is a form of
    bool written = false;  // to the channel: it may only be read until it is freed
  };

  Copies(const Graph& graph, const Schedule& schedule);

  Copy& operator[](InstanceId id) { return copies_[index(id)]; }
  const Copy& operator[](InstanceId id) const { return copies_[index(id)]; }

  void begin(InstanceId id, Term content, Term within = -1);
  void end(InstanceId id, State how);

  // What an op gets from a copy: a packed form stands for the value in it.
  Term value_in(InstanceId id) const;
  // Whether the output would be lost with this copy at this step: no other is there, and none comes later.
  bool last_of_output(InstanceId id, size_t step) const;
  int64_t resident_bytes() const { return resident_bytes_; }
  int64_t resident_of(StorageId storage) const { return resident_[index(storage)]; }

 private:
  const Graph& graph_;
  const Schedule& schedule_;
  std::vector<Copy> copies_;           // by instance
  std::vector<int64_t> resident_;      // by storage: copies of it
  std::vector<size_t> last_creation_;  // by storage: the last step that creates a copy
  int64_t resident_bytes_ = 0;
};

// The end of the sentence "a2#1 ...".
const char* history(Copies::State state);

}  // namespace remat::detail
