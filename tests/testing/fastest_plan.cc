// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fastest_plan.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "remat/core/error.h"

namespace remat::testing {
namespace {

using Ops = uint32_t;  // a set of ops, one bit each

bool has(Ops ops, size_t op) { return (ops >> op & 1) != 0; }
Ops with(Ops ops, size_t op) { return ops | Ops{1} << op; }

constexpr size_t kMostValues = 64;

// How many copies of each value there are, two bits each.
class Copies {
 public:
  uint64_t operator[](size_t value) const { return words_[value / 32] >> value % 32 * 2 & 3; }
  void set(size_t value, uint64_t count) {
    const size_t shift = value % 32 * 2;
    words_[value / 32] = (words_[value / 32] & ~(uint64_t{3} << shift)) | count << shift;
  }
  void add(size_t value, uint64_t most) { set(value, std::min(most, (*this)[value] + 1)); }
  void remove(size_t value) { set(value, (*this)[value] - 1); }
  uint64_t hash() const { return words_[0] * 0x9e3779b97f4a7c15 ^ words_[1] * 0xbf58476d1ce4e5b9; }
  auto operator<=>(const Copies&) const = default;

 private:
  std::array<uint64_t, kMostValues / 32> words_ = {};
};

struct State {
  Ops ran = 0;
  Copies copies;
  auto operator<=>(const State&) const = default;
};

struct Hash {
  size_t operator()(const State& state) const {
    const uint64_t mixed = (state.copies.hash() ^ state.ran) * 0x94d049bb133111eb;
    return mixed ^ mixed >> 31;
  }
};

class Dijkstra {
 public:
  Dijkstra(const Graph& graph, int64_t budget_bytes, const FastestPlanOptions& options)
      : options_(options), budget_bytes_(budget_bytes - graph.external_bytes()) {
    if (graph.ops.size() > 32) throw Error("fastest_plan: more than 32 ops");
    for (const Storage& storage : graph.storages) {
      first_value_.push_back(bytes_.size());
      // Externals are counted once for all; their versions follow from the ops that have run.
      if (storage.external()) continue;
      bytes_.resize(bytes_.size() + storage.changers.size() + 1, storage.bytes);
      // A second copy is of use only to be changed in place while the first is read.
      most_copies_.resize(bytes_.size(), 3);
      most_copies_.back() = 1;
    }
    if (bytes_.size() > kMostValues) throw Error("fastest_plan: more than 64 values");
    for (size_t o = 0; o < graph.ops.size(); ++o) add_op(graph, o);
    for (const StorageId id : graph.outputs) {
      if (!graph.storage(id).external()) outputs_.push_back(value_of({id, graph.last_version(id)}));
    }
  }

  FastestPlan run() {
    FastestPlan result;
    reach({}, 0);
    while (!open_.empty()) {
      const auto [extra_ns, left, state] = open_.top();
      open_.pop();
      if (!settled_.insert(state).second) continue;
      result.states = best_.size();
      if (left == 0 && outputs_there(state)) {
        result.complete = true;
        result.time_ns = once_ns_ + extra_ns;
        return result;
      }
      if (best_.size() > options_.most_states) return result;
      for (size_t o = 0; o < ops_.size(); ++o) {
        if (!may_run(state, o)) continue;
        make_room(state, o, extra_ns, 0, false);
        if (ops_[o].source && bytes_with(state, o) > budget_bytes_)
          make_room(state, o, extra_ns, 0, true);
      }
    }
    result.complete = true;
    return result;
  }

 private:
  // An external as it is after so many of the ops that change it.
  struct External {
    Ops changers = 0;
    int version = 0;
  };
  struct PlainOp {
    std::vector<size_t> reads, updates,
        creates;                      // values that are no externals; updates: the version before
    std::vector<External> externals;  // what every run finds in the world
    std::vector<External> changed;    // what the first run finds there
    std::optional<size_t> source;     // value whose place the result may take
    int64_t shared_bytes = 0;         // if it does
    int64_t created_bytes = 0;
    int64_t workspace_bytes = 0;
    int64_t time_ns = 0;
    Ops earlier = 0;  // ops whose first run comes before this one's
    bool rerunnable = true;
  };

  size_t value_of(const Value& value) const {
    return first_value_[index(value.storage)] + static_cast<size_t>(value.version);
  }

  void add_op(const Graph& graph, size_t o) {
    const Op& op = graph.ops[o];
    PlainOp made;
    made.workspace_bytes = op.workspace_bytes;
    made.time_ns = op.time_ns;
    made.rerunnable = !op.once;
    const auto external = [&](const Value& value) {
      External found{.changers = 0, .version = value.version};
      for (const OpId changer : graph.storage(value.storage).changers) {
        found.changers = with(found.changers, index(changer));
      }
      return found;
    };
    const auto is_external = [&](const Value& value) {
      return graph.storage(value.storage).external();
    };
    for (const Value& value : op.reads) {
      is_external(value) ? made.externals.push_back(external(value))
                         : made.reads.push_back(value_of(value));
    }
    for (const Value& value : op.updates) {
      is_external(value) ? made.externals.push_back(external(value))
                         : made.updates.push_back(value_of(value));
      if (is_external(value)) made.rerunnable = false;
    }
    for (const Value& value : op.effects) made.changed.push_back(external(value));
    for (const StorageId id : op.creates) {
      made.creates.push_back(value_of({id, 0}));
      made.created_bytes += graph.storage(id).bytes;
    }
    if (op.reuse.size() > 1) throw Error("fastest_plan: op " + op.name + " offers several places");
    for (const Value& value : op.reads) {
      if (op.reuse.empty() || value.storage != op.reuse[0].source || is_external(value)) continue;
      made.source = value_of(value);
      made.shared_bytes =
          std::min(graph.storage(op.reuse[0].result).bytes, graph.storage(value.storage).bytes);
    }
    for (size_t before = 0; before < o; ++before) {
      const Op& other = graph.ops[before];
      const bool stays_behind = (op.random && other.random) || (op.once && other.once) ||
                                (!op.effects.empty() && !other.effects.empty());
      if (options_.keep_order || stays_behind) made.earlier = with(made.earlier, before);
    }
    once_ns_ += op.time_ns;
    ops_.push_back(std::move(made));
  }

  bool outputs_there(const State& state) const {
    return std::ranges::all_of(outputs_, [&](size_t value) { return state.copies[value] > 0; });
  }

  bool may_run(const State& state, size_t o) const {
    const PlainOp& op = ops_[o];
    const auto there = [&](size_t value) { return state.copies[value] > 0; };
    const auto as_found = [&](const External& external) {
      return __builtin_popcount(state.ran & external.changers) == external.version;
    };
    const bool in_turn = has(state.ran, o) ? op.rerunnable
                                           : (op.earlier & ~state.ran) == 0 &&
                                                 std::ranges::all_of(op.changed, as_found);
    return in_turn && std::ranges::all_of(op.externals, as_found) &&
           std::ranges::all_of(op.reads, there) && std::ranges::all_of(op.updates, there);
  }

  // While the op runs, with a place of their own for all its results.
  int64_t bytes_with(const State& state, size_t o) const {
    int64_t sum = ops_[o].created_bytes + ops_[o].workspace_bytes;
    for (size_t v = 0; v < bytes_.size(); ++v)
      sum += static_cast<int64_t>(state.copies[v]) * bytes_[v];
    return sum;
  }

  // Runs the op as soon as it fits, after forgetting copies in every possible way. As long as it
  // fits nothing is forgotten: that can wait until something does not.
  void make_room(const State& state, size_t o, int64_t extra_ns, size_t from, bool in_place) {
    const PlainOp& op = ops_[o];
    if (bytes_with(state, o) - (in_place ? op.shared_bytes : 0) <= budget_bytes_) {
      run_op(state, o, extra_ns, in_place);
      return;
    }
    for (size_t v = from; v < bytes_.size(); ++v) {
      const bool needed = std::ranges::count(op.reads, v) + std::ranges::count(op.updates, v) > 0;
      if (bytes_[v] == 0 || state.copies[v] == (needed ? 1 : 0)) continue;
      State less = state;
      less.copies.remove(v);
      make_room(less, o, extra_ns, v, in_place);
    }
  }

  void run_op(State state, size_t o, int64_t extra_ns, bool in_place) {
    const PlainOp& op = ops_[o];
    if (has(state.ran, o)) extra_ns += op.time_ns;
    state.ran = with(state.ran, o);
    if (in_place) state.copies.remove(*op.source);
    for (const size_t value : op.updates) {
      state.copies.remove(value);
      state.copies.add(value + 1, most_copies_[value + 1]);
    }
    for (const size_t value : op.creates) state.copies.add(value, most_copies_[value]);
    reach(state, extra_ns);
  }

  // What nothing can ever read again, and is no output, is as good as gone.
  Copies of_use(const State& state) const {
    std::array<bool, kMostValues> useful = {};
    for (const size_t value : outputs_) useful[value] = true;
    for (size_t o = ops_.size(); o-- > 0;) {
      const PlainOp& op = ops_[o];
      // What is of use may have to be made again, though it is there now.
      const bool runs_again =
          op.rerunnable &&
          (std::ranges::any_of(op.creates, [&](size_t value) { return useful[value]; }) ||
           std::ranges::any_of(op.updates, [&](size_t value) { return useful[value + 1]; }));
      if (has(state.ran, o) && !runs_again) continue;
      for (const size_t value : op.reads) useful[value] = true;
      for (const size_t value : op.updates) useful[value] = true;
    }
    Copies left = state.copies;
    for (size_t v = 0; v < bytes_.size(); ++v) {
      if (!useful[v]) left.set(v, 0);
    }
    return left;
  }

  void reach(State state, int64_t extra_ns) {
    state.copies = of_use(state);
    const auto [entry, fresh] = best_.try_emplace(state, extra_ns);
    if (!fresh && entry->second <= extra_ns) return;
    entry->second = extra_ns;
    open_.push({extra_ns, static_cast<int>(ops_.size()) - __builtin_popcount(state.ran), state});
  }

  FastestPlanOptions options_;
  int64_t budget_bytes_;
  std::vector<size_t> first_value_;  // by storage; of externals, of no meaning
  std::vector<int64_t> bytes_;       // by value
  std::vector<uint64_t> most_copies_;  // by value
  std::vector<PlainOp> ops_;
  std::vector<size_t> outputs_;
  int64_t once_ns_ = 0;
  // Time of re-runs, ops that have not run, state. Every plan runs every op once; those runs are left
  // out until the end. Of equals the one that is further on comes first.
  using Open = std::tuple<int64_t, int, State>;
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open_;
  std::unordered_map<State, int64_t, Hash> best_;
  std::unordered_set<State, Hash> settled_;
};

}  // namespace

FastestPlan fastest_plan(const Graph& graph, int64_t budget_bytes,
                         const FastestPlanOptions& options) {
  return Dijkstra(graph, budget_bytes, options).run();
}

}  // namespace remat::testing
