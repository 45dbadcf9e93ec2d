// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/context.h"

#include <utility>

#include "remat/core/analysis/operands.h"
#include "remat/core/error.h"
#include "remat/core/order/transfers.h"

namespace remat {

namespace {

constexpr int64_t kPassesWithTransfers = 3;  // over the order, to find its time too

}  // namespace

uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

bool better(const FoundOrder& a, const FoundOrder& b) {
  if (a.fits != b.fits) return a.fits;
  return a.fits ? a.cost.time_ns < b.cost.time_ns : a.cost.peak_bytes < b.cost.peak_bytes;
}

SearchContext::SearchContext(const Graph& of, const SearchSettings& settings)
    : graph(of),
      budget_bytes(settings.budget_bytes),
      keep_order(settings.keep_order),
      insert_many(settings.insert_many),
      random(settings.seed),
      cost(of),
      passing(of),
      channel_price(settings.channel_price),
      once_ns(of.total_time_ns()) {
  maker.resize(cost.value_count());
  for (size_t v = 0; v < cost.value_count(); ++v) {
    const OrderCost::ValueIndex number = static_cast<OrderCost::ValueIndex>(v);
    const Value value{cost.storage(number), cost.version(number)};
    const bool given = graph.storage(value.storage).external() && value.version == 0;
    if (!given) maker[v] = remat::maker(graph, value);
  }
  for (size_t i = 0; i < graph.op_count(); ++i) {
    rerunnable.push_back(settings.rerun && graph.rerunnable(static_cast<OpId>(i)));
  }
  if (!graph.moves.empty() && (settings.pack || settings.offload)) find_moves(settings);
  output.resize(cost.value_count(), 0);
  for (const OrderCost::ValueIndex value : cost.outputs()) output[static_cast<size_t>(value)] = 1;
}

void SearchContext::find_moves(const SearchSettings& settings) {
  moves.resize(cost.value_count());
  for (size_t i = 0; i < graph.moves.size(); ++i) {
    const OpId id = static_cast<OpId>(graph.ops.size() + i);
    const Move& move = graph.moves[i];
    if (!(is_transfer(move.kind) ? settings.offload : settings.pack)) continue;
    switch (move.kind) {
      case MoveKind::pack: {
        MovesOfValue& of = moves[static_cast<size_t>(cost.reads(id)[0])];
        of.pack = id;
        of.packed = cost.creates(id)[0];
        break;
      }
      case MoveKind::unpack: moves[static_cast<size_t>(cost.creates(id)[0])].unpack = id; break;
      case MoveKind::offload: {
        MovesOfValue& of = moves[static_cast<size_t>(cost.reads(id)[0])];
        of.offload = id;
        of.away = cost.creates(id)[0];
        break;
      }
      case MoveKind::prefetch: moves[static_cast<size_t>(cost.creates(id)[0])].prefetch = id; break;
      case MoveKind::read_packed: {
        const auto value = cost.value_of(move.value);
        moves[static_cast<size_t>(value)].readers.push_back({move.reader, id});
        break;
      }
    }
  }
}

void SearchContext::retime(FoundOrder& found, Effort& effort) {
  if (!found.cost.transfers) return;
  std::vector<OpId> order = with_transfers_in_time(graph, cost, found.order);
  effort.spend(OrderCost::kWorkPerOp * static_cast<int64_t>(order.size()));
  const OrderCost::Result result = evaluate(order, effort);
  const bool better = result.legal && (result.time_ns != found.cost.time_ns
                                           ? result.time_ns < found.cost.time_ns
                                           : result.overflow < found.cost.overflow);
  if (!better || result.overflow > found.cost.overflow) return;
  found = {.order = std::move(order), .cost = result, .fits = result.overflow == 0};
}

OrderCost::Result SearchContext::evaluate(std::span<const OpId> order, Effort& effort) {
  ++evaluations;
  const OrderCost::Result result = cost.evaluate(order, budget_bytes);
  const int64_t passes = result.transfers ? kPassesWithTransfers : 1;
  effort.spend(passes * OrderCost::kWorkPerOp * static_cast<int64_t>(order.size()));
  return result;
}

FoundOrder SearchContext::start(std::vector<OpId> order, Effort& effort) {
  const OrderCost::Result found = evaluate(order, effort);
  REMAT_ASSERT(found.legal);
  return FoundOrder::of(std::move(order), found);
}

}  // namespace remat
