// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fastest_plan.h"

#include <queue>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "remat/core/error.h"

namespace remat::testing {
namespace {

// Op number o makes value number o: one numbering serves both.
using Set = uint32_t;

bool has(Set set, size_t number) { return (set >> number & 1) != 0; }
Set with(Set set, size_t number) { return set | Set{1} << number; }
Set without(Set set, size_t number) { return set & ~(Set{1} << number); }

struct State {
  Set ran = 0;
  Set there = 0;
  uint64_t key() const { return uint64_t{ran} << 32 | there; }
};

class Dijkstra {
 public:
  Dijkstra(const Graph& graph, int64_t budget_bytes)
      : budget_bytes_(budget_bytes - graph.external_bytes()) {
    if (graph.ops.size() > 32) throw Error("fastest_plan: more than 32 ops");
    std::unordered_map<int64_t, size_t> op_that_makes;
    for (size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      if (op.creates.size() != 1 || !op.updates.empty() || !op.effects.empty() || op.random ||
          op.once || !op.reuse.empty()) {
        throw Error("fastest_plan: op " + op.name + " does more than create one storage");
      }
      Set reads = 0;
      for (const Value& value : op.reads) {
        if (graph.storage(value.storage).external()) continue;
        reads = with(reads, op_that_makes.at(static_cast<int64_t>(value.storage)));
      }
      op_that_makes[static_cast<int64_t>(op.creates.front())] = o;
      once_ns_ += op.time_ns;
      ops_.push_back({reads, graph.storage(op.creates.front()).bytes, op.workspace_bytes, op.time_ns});
    }
    for (const StorageId id : graph.outputs) {
      if (graph.storage(id).external()) continue;
      outputs_ = with(outputs_, op_that_makes.at(static_cast<int64_t>(id)));
    }
  }

  FastestPlan run(size_t most_states) {
    FastestPlan result;
    reach({}, 0);
    while (!open_.empty()) {
      const auto [extra_ns, left, key] = open_.top();
      open_.pop();
      if (!settled_.insert(key).second) continue;
      const State state{static_cast<Set>(key >> 32), static_cast<Set>(key)};
      result.states = best_.size();
      if (left == 0 && (state.there & outputs_) == outputs_) {
        result.complete = true;
        result.time_ns = once_ns_ + extra_ns;
        return result;
      }
      if (best_.size() > most_states) return result;
      for (size_t o = 0; o < ops_.size(); ++o) {
        // To have a value twice is of no use: nothing is ever changed in place.
        if ((ops_[o].reads & ~state.there) == 0 && !has(state.there, o)) make_room(state, o, extra_ns, 0);
      }
    }
    result.complete = true;
    return result;
  }

 private:
  struct PlainOp {
    Set reads;
    int64_t result_bytes;
    int64_t workspace_bytes;
    int64_t time_ns;
  };

  int64_t bytes(Set there) const {
    int64_t sum = 0;
    for (size_t v = 0; v < ops_.size(); ++v) sum += has(there, v) ? ops_[v].result_bytes : 0;
    return sum;
  }

  // Runs the op as soon as it fits, after forgetting values in every possible way. As long as it
  // fits nothing is forgotten: that can wait until something does not.
  void make_room(const State& state, size_t o, int64_t extra_ns, size_t from) {
    const PlainOp& op = ops_[o];
    if (bytes(state.there) + op.result_bytes + op.workspace_bytes <= budget_bytes_) {
      const int64_t again_ns = has(state.ran, o) ? op.time_ns : 0;
      reach({with(state.ran, o), with(state.there, o)}, extra_ns + again_ns);
      return;
    }
    for (size_t v = from; v < ops_.size(); ++v) {
      if (!has(state.there, v) || has(op.reads, v)) continue;
      make_room({state.ran, without(state.there, v)}, o, extra_ns, v + 1);
    }
  }

  // What nothing can ever read again, and is no output, is as good as gone.
  Set of_use(const State& state) const {
    Set useful = outputs_;
    for (size_t o = ops_.size(); o-- > 0;) {
      // What is of use may have to be made again, though it is there now.
      if (!has(state.ran, o) || has(useful, o)) useful |= ops_[o].reads;
    }
    return useful;
  }

  void reach(State state, int64_t extra_ns) {
    state.there &= of_use(state);
    const auto [entry, fresh] = best_.try_emplace(state.key(), extra_ns);
    if (!fresh && entry->second <= extra_ns) return;
    entry->second = extra_ns;
    const int left = static_cast<int>(ops_.size()) - __builtin_popcount(state.ran);
    open_.push({extra_ns, left, state.key()});
  }

  int64_t budget_bytes_;
  std::vector<PlainOp> ops_;
  Set outputs_ = 0;
  int64_t once_ns_ = 0;
  // Time of re-runs, ops that have not run, state. Every plan runs every op once; those runs are left
  // out until the end. Of equals the one that is further on comes first.
  using Open = std::tuple<int64_t, int, uint64_t>;
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open_;
  std::unordered_map<uint64_t, int64_t> best_;
  std::unordered_set<uint64_t> settled_;
};

}  // namespace

FastestPlan fastest_plan(const Graph& graph, int64_t budget_bytes, size_t most_states) {
  return Dijkstra(graph, budget_bytes).run(most_states);
}

}  // namespace remat::testing
