// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/context.h"

#include <utility>

#include "remat/core/error.h"

namespace remat {

uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

SearchContext::SearchContext(const Graph& of, const SearchSettings& settings)
    : graph(of),
      budget_bytes(settings.budget_bytes),
      keep_order(settings.keep_order),
      random(settings.seed),
      cost(of),
      passing(of) {
  maker.resize(cost.value_count());
  for (size_t v = 0; v < cost.value_count(); ++v) {
    const OrderCost::ValueIndex value = static_cast<OrderCost::ValueIndex>(v);
    const Storage& storage = graph.storage(cost.storage(value));
    const int32_t version = cost.version(value);
    if (version > 0) {
      maker[v] = storage.changers[static_cast<size_t>(version) - 1];
    } else if (!storage.external()) {
      maker[v] = *storage.creator;
    }
  }
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    rerunnable.push_back(graph.rerunnable(static_cast<OpId>(i)));
    once_ns += graph.ops[i].time_ns;
  }
  output.resize(cost.value_count(), 0);
  for (const OrderCost::ValueIndex value : cost.outputs()) output[static_cast<size_t>(value)] = 1;
}

OrderCost::Result SearchContext::evaluate(std::span<const OpId> order, Effort& effort) {
  ++evaluations;
  effort.spend(OrderCost::kWorkPerOp * static_cast<int64_t>(order.size()));
  return cost.evaluate(order, budget_bytes);
}

FoundOrder SearchContext::start(std::vector<OpId> order, Effort& effort) {
  FoundOrder found;
  found.order = std::move(order);
  found.cost = evaluate(found.order, effort);
  REMAT_ASSERT(found.cost.legal);
  found.fits = found.cost.overflow == 0;
  return found;
}

}  // namespace remat
