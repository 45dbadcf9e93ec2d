// SPDX-License-Identifier: Apache-2.0
#include "remat/core/exact/coarse_graph.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/analysis/dependences.h"
#include "remat/core/analysis/operands.h"
#include "remat/core/graph_builder.h"

namespace remat {
namespace {

using OpSet = uint64_t;  // of kept ops, by their number
constexpr size_t kMostKept = 64;  // bits

class Coarsening {
 public:
  Coarsening(const Graph& graph, const Dependences& dependences, int64_t least_bytes)
      : graph_(graph), least_bytes_(least_bytes), number_(graph.ops.size(), kLeftOut) {
    for (size_t o = 0; o < graph.ops.size(); ++o) {
      if (!keeps(graph.ops[o])) continue;
      number_[o] = kept_.size();
      kept_.push_back(o);
    }
    if (kept_.size() <= kMostKept) find_waits(dependences);
  }

  size_t op_count() const { return kept_.size(); }
  size_t value_count() const {
    size_t values = static_cast<size_t>(std::popcount(awaited_));
    for (const Storage& storage : graph_.storages) {
      if (large(storage)) values += 1 + storage.changers.size();
    }
    return values;
  }

  Graph build() const {
    GraphBuilder builder;
    builder.external("externals", graph_.external_bytes(), Role::input);
    for (size_t k = 0; k < kept_.size(); ++k) {
      if (changes_external(k)) builder.external(changed(k), 0, Role::buffer);
    }
    for (size_t k = 0; k < kept_.size(); ++k) builder.op(coarse_op(k));
    for (const StorageId id : graph_.outputs) {
      if (large(id)) builder.output(name_of(id));
    }
    return std::move(builder).build();
  }

 private:
  static constexpr size_t kLeftOut = static_cast<size_t>(-1);

  bool large(const Storage& storage) const {
    return !storage.external() && storage.bytes >= least_bytes_;
  }
  bool large(StorageId id) const { return large(graph_.storage(id)); }
  bool large(const Value& value) const { return large(value.storage); }

  // Also what makes nothing large but needs several large ones at once.
  bool keeps(const Op& op) const {
    return std::ranges::any_of(op.creates, [&](StorageId id) { return large(id); }) ||
           std::ranges::any_of(op.updates, [&](const Value& value) { return large(value); }) ||
           std::ranges::count_if(op.reads, [&](const Value& value) { return large(value); }) > 1;
  }

  // What an op waits for through ops that are left out, or for another reason than a large value, and
  // not anyway.
  void find_waits(const Dependences& dependences) {
    waits_.resize(kept_.size(), 0);
    std::vector<OpSet> nearest(graph_.ops.size(), 0);  // kept, at or before an op
    std::vector<OpSet> before(kept_.size(), 0);        // all of them
    for (size_t o = 0; o < graph_.ops.size(); ++o) {
      OpSet waits = 0;
      for (const OpId earlier : dependences.before[o]) waits |= nearest[index(earlier)];
      const size_t k = number_[o];
      nearest[o] = k == kLeftOut ? waits : OpSet{1} << k;
      if (k == kLeftOut) continue;
      for (const Value& value : internal_inputs(graph_, graph_.ops[o])) {
        if (large(value)) add_with_earlier(before, k, number_[index(maker(graph_, value))]);
      }
      for (size_t e = k; e-- > 0;) {  // the latest first: it may have waited for the others
        if ((waits >> e & 1) == 0 || (before[k] >> e & 1) != 0) continue;
        waits_[k] |= OpSet{1} << e;
        add_with_earlier(before, k, e);
      }
      awaited_ |= waits_[k];
    }
  }
  static void add_with_earlier(std::vector<OpSet>& before, size_t k, size_t earlier) {
    before[k] |= OpSet{1} << earlier | before[earlier];
  }

  static std::string name_of(StorageId id) { return "s" + std::to_string(index(id)); }
  // An op that must not be re-run, but keeps no order with those that say so themselves, changes an
  // external of its own.
  bool changes_external(size_t k) const {
    return !graph_.ops[kept_[k]].once && !graph_.rerunnable(static_cast<OpId>(kept_[k]));
  }
  static std::string changed(size_t k) { return "changed" + std::to_string(k); }
  static std::string token(size_t k) { return "after" + std::to_string(k); }

  OpSpec coarse_op(size_t k) const {
    const Op& op = graph_.ops[kept_[k]];
    OpSpec spec = OpSpec::like(op);
    if (changes_external(k)) spec.updates.push_back(changed(k));
    for (const Value& value : op.reads) {
      if (large(value)) spec.reads.push_back(name_of(value.storage));
    }
    for (size_t e = 0; e < k; ++e) {
      if (waits_[k] >> e & 1) spec.reads.push_back(token(e));
    }
    for (const Value& value : op.updates) {
      if (large(value)) spec.updates.push_back(name_of(value.storage));
    }
    for (const StorageId id : op.creates) {
      if (large(id)) spec.creates.push_back({name_of(id), graph_.storage(id).bytes});
    }
    if (awaited_ >> k & 1) spec.creates.push_back({token(k), 0});
    for (const Reuse& reuse : op.reuse) {
      if (large(reuse.result) && large(reuse.source)) {
        spec.reuse.push_back({name_of(reuse.result), name_of(reuse.source)});
      }
    }
    return spec;
  }

  const Graph& graph_;
  int64_t least_bytes_;
  std::vector<size_t> number_;  // by op: among the kept ones, or kLeftOut
  std::vector<size_t> kept_;    // ops
  std::vector<OpSet> waits_;    // by kept op
  OpSet awaited_ = 0;
};

}  // namespace

Graph coarse_graph(const Graph& graph, size_t most_ops, size_t most_values) {
  std::vector<int64_t> sizes;
  for (const Storage& storage : graph.storages) {
    if (!storage.external() && storage.bytes > 0) sizes.push_back(storage.bytes);
  }
  std::ranges::sort(sizes, std::greater<>());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  const Dependences dependences = dependences_of(graph);
  Graph best;
  for (const int64_t size : sizes) {
    const Coarsening coarse(graph, dependences, size);
    if (coarse.op_count() > std::min(most_ops, kMostKept) || coarse.value_count() > most_values) break;
    best = coarse.build();
  }
  return best;
}

}  // namespace remat
