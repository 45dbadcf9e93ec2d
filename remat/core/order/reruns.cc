// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/reruns.h"

#include <algorithm>
#include <utility>

namespace remat {

namespace {

// A move whose value was packed or offloaded before, and would only have to stay if it were not there.
bool ends_a_move(const Graph& graph, OpId id) {
  if (!graph.is_move(id)) return false;
  const MoveKind kind = graph.move(id).kind;
  return kind != MoveKind::pack && kind != MoveKind::offload;
}

}  // namespace

std::vector<size_t> reruns_of(const Graph& graph, std::span<const OpId> order) {
  std::vector<bool> seen(graph.op_count(), false);
  std::vector<size_t> reruns;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t op = index(graph.original(order[i]));
    if (ends_a_move(graph, order[i]) || (seen[op] && !graph.is_move(order[i]))) reruns.push_back(i);
    seen[op] = true;
  }
  return reruns;
}

std::vector<OpId> without(const Graph& graph, std::span<const OpId> order,
                          const std::vector<bool>& erased) {
  std::vector<OpId> rest;
  rest.reserve(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (!erased[i]) {
      rest.push_back(order[i]);
    } else if (graph.original(order[i]) != order[i]) {
      rest.push_back(graph.original(order[i]));
    }
  }
  return rest;
}

void erase_dead(const Graph& graph, const OrderCost& cost, std::vector<OpId>& order,
                Effort& effort) {
  std::vector<bool> seen(graph.op_count(), false);
  std::vector<bool> needed_at(order.size(), false);  // first runs are needed even if no op uses what they make
  bool all_needed = true;
  for (size_t i = 0; i < order.size(); ++i) {
    const OpId op = graph.original(order[i]);
    needed_at[i] = !graph.is_move(op) && !seen[index(op)];
    seen[index(op)] = true;
    all_needed = all_needed && needed_at[i];
  }
  if (all_needed) return;
  NeededCopies copies = cost.needed_at_the_end();
  size_t kept = order.size();
  for (size_t i = order.size(); i-- > 0;) {
    const OpId op = order[i];
    const auto needed = [&](OrderCost::ValueIndex value) {
      return copies.needed(static_cast<size_t>(value));
    };
    const bool useful = needed_at[i] || std::ranges::any_of(cost.creates(op), needed) ||
                        std::ranges::any_of(cost.updates(op), needed, &OrderCost::Update::after);
    if (!useful) continue;
    cost.step_back(op, copies);
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
  // Without a move or a re-run others may have to wait for transfers.
  const int64_t most_ns = found.cost.time_ns;
  const bool erased =
      erase_needless(context.graph, found.order, reruns, effort, [&](const std::vector<OpId>& trial) {
        const OrderCost::Result cost = context.evaluate(trial, effort);
        return cost.legal && cost.overflow == 0 && cost.time_ns <= most_ns;
      });
  if (!erased) return;
  erase_dead(context.graph, context.cost, found.order, effort);
  found = context.start(std::move(found.order), effort);
}

}  // namespace remat
