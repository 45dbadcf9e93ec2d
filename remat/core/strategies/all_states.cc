// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/all_states.h"

#include <algorithm>

#include "remat/core/strategies/shares.h"

namespace remat {
namespace {

constexpr size_t kMostlyComplete = 32;  // ops, up to which a longer look at all states mostly ends

// state_search takes the best of several places for a result, rewrite the first.
bool one_place_each(const Graph& graph) {
  return std::all_of(graph.ops.begin(), graph.ops.end(),
                     [](const Op& op) { return op.reuse.size() <= 1; });
}

}  // namespace

StateSearchResult search_all_states(const Graph& graph, const PlanOptions& options,
                                    Effort& effort) {
  if (!one_place_each(graph)) return {};
  const bool worth_it = graph.ops.size() <= kMostlyComplete;
  Effort own = effort.part(work_share(graph, options, worth_it ? kAllStatesShare : kStatesShare));
  return search_states(graph, options.budget_bytes, own,
                       {.freedom = options.keep_order ? Freedom::given_order : Freedom::any_order});
}

}  // namespace remat
