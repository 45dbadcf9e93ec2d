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
  pack,       // kept in fewer bytes while idle
  offload,    // on the channel while idle
};
inline constexpr size_t kActionCount = 5;
std::string_view name(Action action);

struct Explanation {
  StorageId storage{};
  Action action = Action::none;
  int64_t recomputes = 0;  // how often its creator runs beyond the first time
  int64_t packs = 0;       // how often it is packed, ...
  int64_t offloads = 0;    // ... and written to the channel
  std::string sentence;    // what, why, with numbers: what each of the ways that there are costs
};

// One for every storage the step creates, in the order of the graph: what becomes of it in the plan
// and the reason that the strategy recorded when it decided.
std::vector<Explanation> explain(const Graph& graph, const Plan& plan);

}  // namespace remat
