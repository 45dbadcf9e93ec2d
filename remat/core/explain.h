// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/plan.h"

namespace remat {

enum class Action : uint8_t {
  keep,       // idle for a while, resident all the same
  recompute,  // forgotten while idle and made again
  none,       // never idle across the turning point: nothing to decide
};
std::string_view name(Action action);

struct Explanation {
  StorageId storage{};
  Action action = Action::none;
  int64_t recomputes = 0;  // how often its creator runs beyond the first time
  std::string sentence;    // what, why, with numbers
};

// One for every storage the step creates, in the order of the graph: what becomes of it in the plan
// and the reason that the strategy recorded when it decided.
std::vector<Explanation> explain(const Graph& graph, const Plan& plan);

}  // namespace remat
