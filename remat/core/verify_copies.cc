// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify_copies.h"

namespace remat::detail {

Copies::Copies(const Graph& graph, const Schedule& schedule)
    : graph_(graph),
      schedule_(schedule),
      copies_(schedule.instances.size()),
      resident_(graph.storage_count(), 0),
      last_creation_(graph.storage_count(), 0) {
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const ScheduleStep& step = schedule.steps[s];
    if (step.kind == StepKind::free) continue;
    for (const StorageId id : graph.op(step.op).creates) last_creation_[index(id)] = s;
  }
}

void Copies::begin(InstanceId id, Term content, Term within) {
  const StorageId storage = schedule_.instances[index(id)].storage;
  copies_[index(id)] = {.state = State::resident, .content = content, .within = within};
  ++resident_[index(storage)];
  resident_bytes_ += graph_.storage(storage).bytes;
}

void Copies::end(InstanceId id, State how) {
  const StorageId storage = schedule_.instances[index(id)].storage;
  copies_[index(id)].state = how;
  --resident_[index(storage)];
  resident_bytes_ -= graph_.storage(storage).bytes;
}

Term Copies::value_in(InstanceId id) const {
  const Copy& copy = copies_[index(id)];
  return graph_.is_form(schedule_.instances[index(id)].storage) ? copy.within : copy.content;
}

bool Copies::last_of_output(InstanceId id, size_t step) const {
  const StorageId storage = schedule_.instances[index(id)].storage;
  return graph_.storage(storage).output && resident_[index(storage)] == 1 &&
         last_creation_[index(storage)] <= step;
}

const char* history(Copies::State state) {
  switch (state) {
    case Copies::State::not_created: return "was not created yet";
    case Copies::State::resident: return "is resident";
    case Copies::State::freed: return "was freed";
    case Copies::State::taken: return "lost its place to a result";
  }
  return "";
}

}  // namespace remat::detail
