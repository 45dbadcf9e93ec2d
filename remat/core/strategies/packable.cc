// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/packable.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "remat/core/order/reorder.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/strategies/shares.h"

namespace remat {
namespace {

constexpr size_t kMostRuns = 5'000;  // of a plan: bounds the work, as up to five placements are looked for
constexpr int64_t kTriesPerRun = 5;  // to move runs: enough that each has its turn
constexpr int64_t kClearlyLess = 2;  // so many times less waste is worth another order
// Parts of the arena above which less should lie, the most helpful first: lower ones free more ticks,
// higher ones free the fullest.
constexpr double kLines[] = {0.7, 0.9, 0.8, 0.5};

}  // namespace

void make_packable(const Graph& graph, const PlanOptions& options, Effort& effort, Plan& plan) {
  if (!options.stages.packable) return;
  if (!plan.feasible || options.keep_order || plan.order.size() > kMostRuns) return;
  const int64_t share = work_share(graph, options, kPackingShare);
  const int64_t external_bytes = graph.external_bytes();
  const int64_t enough_bytes = options.placed && options.budget_bytes != kNoBudget
                                   ? options.budget_bytes - external_bytes
                                   : 0;
  const auto addresses_of = [&](const std::vector<OpId>& order) {
    Effort own = effort.part(share);
    return place(graph, rewrite(graph, order), {.enough_bytes = enough_bytes}, own);
  };
  const auto good = [&](const Placement& placement) {
    return placement.arena_bytes <= std::max(placement.max_live_bytes, enough_bytes);
  };
  const auto waste = [](const Placement& placement) {
    return placement.arena_bytes - placement.max_live_bytes;
  };
  const std::vector<OpId> first = plan.order;
  const double arena_bytes = static_cast<double>(plan.peak_bytes - external_bytes);
  Placement best = addresses_of(first);
  for (size_t i = 0; i < std::size(kLines) && !good(best); ++i) {
    SearchContext context(graph, {.budget_bytes = options.budget_bytes, .seed = options.seed + i});
    Effort own = effort.part(share);
    FoundOrder found = context.start(first, own);
    flatten(context, found, external_bytes + static_cast<int64_t>(kLines[i] * arena_bytes),
            kTriesPerRun * static_cast<int64_t>(first.size()), own);
    context.retime(found, own);
    if (found.cost.time_ns > plan.time_ns) continue;  // an op has to wait for a transfer now
    Placement placement = addresses_of(found.order);
    if (!good(placement) && kClearlyLess * waste(placement) > waste(best)) continue;
    best = std::move(placement);
    plan.order = std::move(found.order);
    plan.peak_bytes = found.cost.peak_bytes;
    plan.time_ns = found.cost.time_ns;
  }
  if (good(best)) plan.placement = std::move(best);
}

}  // namespace remat
