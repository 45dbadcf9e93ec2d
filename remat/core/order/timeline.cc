// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/timeline.h"

#include <algorithm>

namespace remat {
namespace {

template <typename See>
void for_each_event(const OrderCost& cost, OpId op, const See& see) {
  for (const OrderCost::ValueIndex value : cost.reads(op)) see(value, false);
  for (const OrderCost::Update& update : cost.updates(op)) {
    see(update.before, false);
    see(update.after, true);
  }
  for (const OrderCost::ValueIndex value : cost.creates(op)) see(value, true);
}

}  // namespace

void OrderTimeline::build(const OrderCost& cost, std::span<const OpId> order) {
  start_.assign(cost.value_count() + 1, 0);
  for (const OpId op : order) {
    for_each_event(cost, op,
                   [&](ValueIndex value, bool) { ++start_[static_cast<size_t>(value) + 1]; });
  }
  for (size_t v = 1; v < start_.size(); ++v) start_[v] += start_[v - 1];
  events_.resize(static_cast<size_t>(start_.back()));
  fill_.assign(start_.begin(), start_.end() - 1);
  for (size_t i = 0; i < order.size(); ++i) {
    for_each_event(cost, order[i], [&](ValueIndex value, bool makes) {
      events_[static_cast<size_t>(fill_[static_cast<size_t>(value)]++)] = {static_cast<int32_t>(i),
                                                                           makes};
    });
  }
}

std::span<const OrderTimeline::Event>::iterator OrderTimeline::next(ValueIndex value,
                                                                    size_t position) const {
  const std::span<const Event> all = events(value);
  return std::lower_bound(all.begin(), all.end(), static_cast<int32_t>(position),
                          [](const Event& event, int32_t at) { return event.position < at; });
}

bool OrderTimeline::alive(ValueIndex value, size_t position) const {
  const std::span<const Event> all = events(value);
  const auto at = next(value, position);
  return at != all.end() && at != all.begin() && !at->makes;
}

}  // namespace remat
