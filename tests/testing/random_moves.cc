// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/random_moves.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "remat/core/moves.h"
#include "remat/core/order/cost.h"

namespace remat::testing {
namespace {

constexpr double kPackedRate = 0.4;
constexpr double kReaderRate = 0.7;
constexpr double kChannelRate = 0.8;

int32_t last_version_read(const Graph& graph, StorageId storage) {
  int32_t last = -1;
  for (const Op& op : graph.ops) {
    for (const Value& value : op.reads) {
      if (value.storage == storage) last = std::max(last, value.version);
    }
  }
  return last;
}

bool can_read_packed(const Op& op, const Value& value) {
  return std::count(op.reads.begin(), op.reads.end(), value) == 1 && op.updates.empty() &&
         op.effects.empty() && !op.random && !op.once;
}

}  // namespace

void add_random_moves(std::mt19937_64& generator, Graph& graph) {
  graph.packed_forms.clear();
  for (size_t s = graph.external_count; s < graph.storages.size(); ++s) {
    const StorageId id = static_cast<StorageId>(s);
    const Value value{id, last_version_read(graph, id)};
    const int64_t bytes = graph.storages[s].bytes;
    if (value.version != graph.last_version(id) || bytes == 0 || !chance(generator, kPackedRate)) continue;
    PackedForm packed{.storage = id,
                      .rule = "any",
                      .bytes = draw(generator, 0, bytes - 1),
                      .pack_ns = draw(generator, 0, 50),
                      .unpack_ns = draw(generator, 0, 50),
                      .readers = {}};
    for (size_t o = 0; o < graph.ops.size(); ++o) {
      if (can_read_packed(graph.ops[o], value) && chance(generator, kReaderRate)) {
        packed.readers.push_back(static_cast<OpId>(o));
      }
    }
    if (!packed.readers.empty() && chance(generator, 0.3)) packed.unpack_ns.reset();
    graph.packed_forms.push_back(std::move(packed));
  }
  graph.channel.reset();
  if (chance(generator, kChannelRate)) {
    graph.channel = ChannelModel{.write_bytes_per_s = draw(generator, 1, 200) * 1'000'000'000,
                            .read_bytes_per_s = draw(generator, 1, 200) * 1'000'000'000,
                            .latency_ns = draw(generator, 0, 5),
                            .alignment = int64_t{1} << draw(generator, 0, 9)};
  }
  add_moves(graph);
}

std::vector<OpId> with_random_moves(std::mt19937_64& generator, const Graph& graph,
                                    std::vector<OpId> order, int tries) {
  if (graph.moves.empty()) return order;
  OrderCost cost(graph);  // ten times faster than rewrite and its exceptions, and of the same opinion
  const auto place = [&](int64_t low, const std::vector<OpId>& in) {
    return draw(generator, low, static_cast<int64_t>(in.size()));
  };
  for (int i = 0; i < tries; ++i) {
    const size_t which =
        static_cast<size_t>(draw(generator, 0, static_cast<int64_t>(graph.moves.size()) - 1));
    const Move& move = graph.moves[which];
    const OpId id = static_cast<OpId>(graph.ops.size() + which);
    std::vector<OpId> changed = order;
    const int64_t first = place(0, order);
    if (move.kind == MoveKind::pack || move.kind == MoveKind::offload) {
      changed.insert(changed.begin() + first, id);
      // What brings it back comes after it in the table.
      const OpId back = static_cast<OpId>(index(id) + 1);
      const bool has_back =
          which + 1 < graph.moves.size() && graph.moves[which + 1].value == move.value &&
          graph.moves[which + 1].kind != MoveKind::read_packed;
      if (has_back && chance(generator, 0.9)) {
        changed.insert(changed.begin() + place(first + 1, changed), back);
      }
    } else if (move.kind == MoveKind::read_packed) {
      const auto reader = std::ranges::find(changed, move.reader);
      if (reader == changed.end()) continue;
      *reader = id;
    } else {
      changed.insert(changed.begin() + first, id);
    }
    if (cost.evaluate(changed, 0).legal) order = std::move(changed);
  }
  return order;
}

}  // namespace remat::testing
