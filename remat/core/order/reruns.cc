// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/reruns.h"

#include <algorithm>
#include <utility>

namespace remat {

std::vector<size_t> reruns_of(const Graph& graph, std::span<const OpId> order) {
  std::vector<bool> seen(graph.ops.size(), false);
  std::vector<size_t> reruns;
  for (size_t i = 0; i < order.size(); ++i) {
    if (seen[index(order[i])]) reruns.push_back(i);
    seen[index(order[i])] = true;
  }
  return reruns;
}

std::vector<OpId> without(std::span<const OpId> order, const std::vector<bool>& erased) {
  std::vector<OpId> rest;
  rest.reserve(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (!erased[i]) rest.push_back(order[i]);
  }
  return rest;
}

void erase_dead(const SearchContext& context, std::vector<OpId>& order, Effort& effort) {
  using ValueIndex = OrderCost::ValueIndex;
  const OrderCost& cost = context.cost;
  const std::vector<size_t> reruns = reruns_of(context.graph, order);
  if (reruns.empty()) return;
  std::vector<int32_t> needed(cost.value_count(), 0);  // copies
  const auto at = [](ValueIndex value) { return static_cast<size_t>(value); };
  for (const ValueIndex output : cost.outputs()) needed[at(output)] = 1;
  size_t rerun = reruns.size();
  size_t kept = order.size();
  for (size_t i = order.size(); i-- > 0;) {
    const OpId op = order[i];
    const bool is_rerun = rerun > 0 && reruns[rerun - 1] == i;
    if (is_rerun) --rerun;
    bool useful = !is_rerun;
    for (const ValueIndex value : cost.creates(op)) useful = useful || needed[at(value)] > 0;
    for (const OrderCost::Update& update : cost.updates(op)) {
      useful = useful || needed[at(update.after)] > 0;
    }
    if (!useful) continue;
    for (const ValueIndex value : cost.creates(op)) {
      needed[at(value)] = std::max(0, needed[at(value)] - 1);
    }
    for (const OrderCost::Update& update : cost.updates(op)) {
      needed[at(update.after)] = std::max(0, needed[at(update.after)] - 1);
      ++needed[at(update.before)];
    }
    for (const ValueIndex value : cost.reads(op)) {
      needed[at(value)] = std::max(1, needed[at(value)]);
    }
    order[--kept] = op;
  }
  order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept));
  effort.spend(OrderCost::kWorkPerOp * static_cast<int64_t>(order.size()));
}

void prune(SearchContext& context, FoundOrder& found, size_t most, Effort& effort) {
  std::vector<size_t> reruns = reruns_of(context.graph, found.order);
  std::stable_sort(reruns.begin(), reruns.end(), [&](size_t a, size_t b) {
    return context.graph.op(found.order[a]).time_ns > context.graph.op(found.order[b]).time_ns;
  });
  if (reruns.size() > most) {
    // The same expensive ones every time would leave the others untried for ever.
    for (size_t i = 0; i < most; ++i) {
      std::swap(reruns[i], reruns[i + context.random.below(reruns.size() - i)]);
    }
    reruns.resize(most);
  }
  const bool erased = erase_needless(found.order, reruns, effort, [&](const std::vector<OpId>& trial) {
    const OrderCost::Result cost = context.evaluate(trial, effort);
    return cost.legal && cost.overflow == 0;
  });
  if (!erased) return;
  erase_dead(context, found.order, effort);
  found = context.start(std::move(found.order), effort);
}

}  // namespace remat
