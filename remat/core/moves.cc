// SPDX-License-Identifier: Apache-2.0
#include "remat/core/moves.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace remat {
namespace {

constexpr int32_t kNobody = -1;

std::vector<int32_t> last_read_versions(const Graph& graph) {
  std::vector<int32_t> versions(graph.storages.size(), kNobody);
  for (const Op& op : graph.ops) {
    for (const Value& value : op.reads) {
      int32_t& version = versions[index(value.storage)];
      version = std::max(version, value.version);
    }
  }
  return versions;
}

class MoveMaker {
 public:
  explicit MoveMaker(Graph& graph) : graph_(graph), version_(last_read_versions(graph)) {}

  void make() {
    graph_.moves.clear();
    graph_.forms.clear();
    for (const PackedForm& packed : graph_.packed_forms) add_packed(packed);
    if (!graph_.channel) return;
    for (size_t s = graph_.external_count; s < graph_.storages.size(); ++s) {
      const int64_t bytes = graph_.storages[s].bytes;
      const bool worth_it = graph_.channel->write_ns(bytes) > 2 * graph_.channel->latency_ns;
      const StorageId id = static_cast<StorageId>(s);
      if (version_[s] == graph_.last_version(id) && worth_it) add_away(id);
    }
  }

 private:
  Value value_of(StorageId storage) const { return {storage, version_[index(storage)]}; }

  StorageId add_form(StorageId storage, char mark, int64_t bytes) {
    const Storage& of = graph_.storage(storage);
    graph_.forms.push_back({.name = of.name + mark,
                            .bytes = bytes,
                            .role = of.role,
                            .creator = static_cast<OpId>(graph_.op_count()),
                            .changers = {},
                            .output = false});
    return static_cast<StorageId>(graph_.storage_count() - 1);
  }

  void add(MoveKind kind, const Value& value, const Value& read, StorageId created, int64_t time_ns) {
    const Op& maker = graph_.op(*graph_.storage(value.storage).creator);
    Op op;
    op.name = graph_.storage(value.storage).name;
    op.phase = maker.phase;
    op.kind = "remat::" + std::string(name(kind));
    op.scope = maker.scope;
    op.time_ns = time_ns;
    op.reads = {read};
    op.creates = {created};
    graph_.moves.push_back({.kind = kind, .value = value, .reader = {}, .op = std::move(op)});
  }

  void add_packed(const PackedForm& packed) {
    const Value value = value_of(packed.storage);
    const StorageId form = add_form(packed.storage, kPackedMark, packed.bytes);
    add(MoveKind::pack, value, value, form, packed.pack_ns);
    if (packed.unpack_ns) {
      add(MoveKind::unpack, value, {form, 0}, packed.storage, *packed.unpack_ns);
    }
    for (const OpId reader : packed.readers) {
      Op op = graph_.op(reader);
      std::replace(op.reads.begin(), op.reads.end(), value, Value{form, 0});
      std::erase_if(op.reuse, [&](const Reuse& reuse) { return reuse.source == packed.storage; });
      graph_.moves.push_back({.kind = MoveKind::read_packed,
                              .value = value,
                              .reader = reader,
                              .op = std::move(op)});
    }
  }

  void add_away(StorageId storage) {
    const Value value = value_of(storage);
    const StorageId form = add_form(storage, kAwayMark, 0);
    add(MoveKind::offload, value, value, form, 0);
    add(MoveKind::prefetch, value, {form, 0}, storage, 0);
  }

  Graph& graph_;
  std::vector<int32_t> version_;  // by storage: the last that is read
};

}  // namespace

std::string_view name(MoveKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"pack", "unpack", "offload", "prefetch",
                                                      "read_packed"};
  return kNames[static_cast<size_t>(kind)];
}

void add_moves(Graph& graph) { MoveMaker(graph).make(); }

Graph with_moves(const Graph& graph, bool pack, bool offload) {
  Graph result = graph;
  if (!pack) result.packed_forms.clear();
  if (!offload) result.channel.reset();
  add_moves(result);
  return result;
}

Graph without_moves(const Graph& graph) { return with_moves(graph, false, false); }

OpId op_behind(const Graph& graph, OpId id) {
  if (!graph.is_move(id)) return id;
  const Move& move = graph.move(id);
  return move.kind == MoveKind::read_packed ? move.reader : *graph.storage(move.value.storage).creator;
}

OrderCounts count_extra(const Graph& graph, std::span<const OpId> order) {
  OrderCounts counts;
  counts.recomputed_ops = -static_cast<int64_t>(graph.ops.size());
  for (const OpId id : order) {
    if (!graph.is_move(id) || graph.move(id).kind == MoveKind::read_packed) {
      ++counts.recomputed_ops;
    } else if (graph.move(id).kind == MoveKind::pack) {
      ++counts.packed_values;
    } else if (graph.move(id).kind == MoveKind::offload) {
      ++counts.offloaded_values;
      counts.offloaded_bytes += graph.storage(graph.move(id).value.storage).bytes;
    }
  }
  return counts;
}

}  // namespace remat
