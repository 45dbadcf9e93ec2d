// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/reference_mutwo.h"

#include <algorithm>
#include <limits>
#include <set>

#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"

namespace remat::testing {
namespace {

// Table B of the paper, for one intermediate. Ranks are positions in the graph.
struct Intermediate {
  StorageId storage{};
  Value idle;  // the storage at the version it has between forward and backward
  size_t last_fw_access = 0;
  size_t first_bw_access = 0;
  size_t last_bw_access = 0;
};

struct Recomputation {
  std::set<size_t> ops;         // recomp_graph
  std::set<StorageId> sources;  // recomp_srcs: intermediates only
  int64_t time_ns = 0;          // recomp_time
};

class Reference {
 public:
  Reference(const Graph& graph, int64_t budget_bytes) : graph_(graph), budget_bytes_(budget_bytes) {
    while (graph.ops[turn_].phase == Phase::forward) ++turn_;
    for (size_t s = graph.external_count; s < graph.storages.size(); ++s)
      add(static_cast<StorageId>(s));
  }

  ReferenceMutwo run() {
    ReferenceMutwo best = attempt();
    while (best.peak_bytes > budget_bytes_ && dropped_.size() < candidates_.size()) {
      pick();
      ReferenceMutwo next = attempt();
      if (next.peak_bytes < best.peak_bytes || next.peak_bytes <= budget_bytes_) best = next;
    }
    return best;
  }

 private:
  std::vector<size_t> accesses(StorageId id) const {
    std::vector<size_t> found;
    for (size_t o = 0; o < graph_.ops.size(); ++o) {
      const auto touches = [&](const Value& value) { return value.storage == id; };
      const Op& op = graph_.ops[o];
      if (std::ranges::any_of(op.reads, touches) || std::ranges::any_of(op.updates, touches)) {
        found.push_back(o);
      }
    }
    return found;
  }

  int32_t version_before(StorageId id, size_t op) const {
    return static_cast<int32_t>(std::ranges::count_if(
        graph_.storage(id).changers, [&](OpId changer) { return index(changer) < op; }));
  }

  // The ops that make a value, its creator first.
  std::vector<size_t> makers(const Value& value) const {
    const Storage& storage = graph_.storage(value.storage);
    std::vector<size_t> ops{index(*storage.creator)};
    for (int32_t v = 0; v < value.version; ++v) {
      ops.push_back(index(storage.changers[static_cast<size_t>(v)]));
    }
    return ops;
  }

  bool can_be_made(const Value& value) const {
    return std::ranges::all_of(makers(value),
                               [&](size_t op) { return graph_.rerunnable(static_cast<OpId>(op)); });
  }

  void add(StorageId id) {
    const Storage& storage = graph_.storage(id);
    const size_t made = index(*storage.creator);
    if (made >= turn_) return;
    Intermediate x{.storage = id,
                   .idle = {id, version_before(id, turn_)},
                   .last_fw_access = made,
                   .first_bw_access = graph_.ops.size(),
                   .last_bw_access = 0};
    for (const size_t op : accesses(id)) {
      if (op < turn_) x.last_fw_access = op;
      if (op >= turn_) x.first_bw_access = std::min(x.first_bw_access, op);
      if (op >= turn_) x.last_bw_access = op;
    }
    const bool used_in_backward = x.last_bw_access > 0;
    if (!used_in_backward && !storage.output) return;
    kept_until_the_end_.insert(id);
    const bool idles = used_in_backward && x.last_fw_access + 1 < x.first_bw_access;
    if (idles && !storage.output && storage.bytes > 0 && can_be_made(x.idle))
      candidates_.push_back(x);
  }

  const Intermediate* candidate(StorageId id) const {
    const auto found = std::ranges::find(candidates_, id, &Intermediate::storage);
    return found == candidates_.end() ? nullptr : &*found;
  }

  // Whether a recomputation right before `when` finds the value there.
  bool present(const Value& value, size_t when) const {
    if (graph_.storage(value.storage).external()) return true;
    if (!can_be_made(value)) return true;
    if (!kept_until_the_end_.contains(value.storage)) return false;
    if (version_before(value.storage, when) != value.version) return false;
    if (!is_dropped(value.storage)) return true;
    const Intermediate& x = *candidate(value.storage);
    return x.first_bw_access <= when && when <= x.last_bw_access;
  }

  bool is_dropped(StorageId id) const {
    return std::ranges::find(dropped_, id, &ReferenceMutwo::Pick::storage) != dropped_.end();
  }

  void make(const Value& value, size_t when, Recomputation& made) const {
    for (const size_t o : makers(value)) {
      if (!made.ops.insert(o).second) continue;
      const Op& op = graph_.ops[o];
      made.time_ns += op.time_ns;
      for (const Value& read : op.reads) {
        if (!present(read, when)) {
          make(read, when, made);
        } else if (candidate(read.storage)) {
          made.sources.insert(read.storage);
        }
      }
      // What is changed in place must be a copy of the recomputation's own.
      for (const Value& changed : op.updates) make(changed, when, made);
    }
  }

  Recomputation recomputation(const Intermediate& x) const {
    Recomputation made;
    make(x.idle, x.first_bw_access, made);
    return made;
  }

  void pick() {
    const Intermediate* best = nullptr;
    int64_t best_total_ns = 0;
    for (const Intermediate& x : candidates_) {
      if (is_dropped(x.storage)) continue;
      int64_t runs = 1;
      for (const ReferenceMutwo::Pick& other : dropped_) {
        runs +=
            static_cast<int64_t>(recomputation(*candidate(other.storage)).sources.count(x.storage));
      }
      const int64_t total_ns = recomputation(x).time_ns * runs;
      if (!best || higher_ratio(bytes(x), total_ns, bytes(*best), best_total_ns)) {
        best = &x;
        best_total_ns = total_ns;
      }
    }
    dropped_.push_back({best->storage, best_total_ns});
  }

  int64_t bytes(const Intermediate& x) const { return graph_.storage(x.storage).bytes; }

  static bool higher_ratio(int64_t bytes, int64_t ns, int64_t other_bytes, int64_t other_ns) {
    if (bytes * other_ns != other_bytes * ns) return bytes * other_ns > other_bytes * ns;
    return bytes > other_bytes;
  }

  // The order with all picks so far: right before an op, one block that makes what the op is the first
  // of backward to need.
  ReferenceMutwo attempt() const {
    ReferenceMutwo result{.picks = dropped_, .order = {}, .peak_bytes = 0, .priced_ns = 0};
    for (size_t o = 0; o < graph_.ops.size(); ++o) {
      std::set<size_t> block;
      for (const ReferenceMutwo::Pick& pick : dropped_) {
        const Intermediate& x = *candidate(pick.storage);
        if (x.first_bw_access != o) continue;
        const Recomputation made = recomputation(x);
        block.insert(made.ops.begin(), made.ops.end());
        result.priced_ns += made.time_ns;
      }
      for (const size_t again : block) result.order.push_back(static_cast<OpId>(again));
      result.order.push_back(static_cast<OpId>(o));
    }
    result.peak_bytes = simulate_peak(graph_, rewrite(graph_, result.order)).bytes;
    return result;
  }

  const Graph& graph_;
  int64_t budget_bytes_;
  size_t turn_ = 0;                         // the first op that is not in forward
  std::set<StorageId> kept_until_the_end_;  // unless dropped: intermediates, and outputs of forward
  std::vector<Intermediate> candidates_;
  std::vector<ReferenceMutwo::Pick> dropped_;
};

}  // namespace

ReferenceMutwo reference_mutwo(const Graph& graph, int64_t budget_bytes) {
  return Reference(graph, budget_bytes).run();
}

}  // namespace remat::testing
