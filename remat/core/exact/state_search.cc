// SPDX-License-Identifier: Apache-2.0
#include "remat/core/exact/state_search.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "remat/core/analysis/operands.h"
#include "remat/core/mutual_order.h"
#include "remat/core/reuse.h"

namespace remat {
namespace {

constexpr size_t kMostValues = kMostStateValues;
using Counts = std::array<uint8_t, kMostValues>;  // copies by value
using OpSet = uint64_t;
constexpr size_t kMostOps = 64;

bool has(OpSet ops, size_t op) { return (ops >> op & 1) != 0; }
OpSet with(OpSet ops, size_t op) { return ops | OpSet{1} << op; }

// Whether there are at least as many copies of every value: eight at a time, since this is what the
// search does most. Demands counts below 128.
bool covers(const Counts& more, const Counts& fewer) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  for (size_t from = 0; from < kMostValues; from += sizeof(uint64_t)) {
    uint64_t a = 0, b = 0;
    std::memcpy(&a, more.data() + from, sizeof(a));
    std::memcpy(&b, fewer.data() + from, sizeof(b));
    if ((((a | kHighBits) - b) & kHighBits) != kHighBits) return false;
  }
  return true;
}

struct State {
  OpSet run = 0;
  Counts counts{};
  int64_t extra_ns = 0;  // time of re-runs
  size_t parent = 0;
  OpId op{};  // that led here
};

// What makes two states the same; they may differ in time.
struct Situation {
  OpSet run;
  Counts counts;
  bool operator==(const Situation&) const = default;
};

struct HashSituation {
  size_t operator()(const Situation& situation) const {
    uint64_t hash = situation.run * 0x9e3779b97f4a7c15;
    for (size_t from = 0; from < kMostValues; from += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, situation.counts.data() + from, sizeof(word));
      hash = (hash ^ word ^ hash >> 29) * 0xbf58476d1ce4e5b9;
    }
    return hash ^ hash >> 32;
  }
};

class Search {
 public:
  Search(const Graph& graph, int64_t budget_bytes, const StateSearchOptions& options)
      : graph_(graph),
        options_(options),
        free_bytes_(budget_bytes - graph.external_bytes()),
        values_(graph) {
    for (const Value& value : output_values(graph)) outputs_.push_back(at(value));
    for (const Op& op : graph.ops) {
      std::vector<size_t>& inputs = inputs_.emplace_back();
      for (const Value& value : internal_inputs(graph, op)) inputs.push_back(at(value));
    }
  }

  StateSearchResult run(Effort& effort) {
    StateSearchResult result;
    if (graph_.ops.size() > kMostOps || values_.size() > kMostValues) return result;
    push({});
    size_t charged = 0;  // states
    while (!open_.empty()) {
      const auto [least_ns, left, id] = open_.top();
      open_.pop();
      if (dominated(id)) continue;
      result.least_extra_ns = least_ns;
      if (finished(states_[id])) {
        result.complete = result.feasible = true;
        result.order = order_to(id);
        for (const OpId op : result.order) result.time_ns += graph_.op(op).time_ns;
        break;
      }
      const size_t states = states_.size() + compared_ / kComparisonsPerState;
      effort.spend(kWorkPerState * static_cast<int64_t>(states - charged));
      charged = states;
      if (effort.exhausted() || result.least_extra_ns >= options_.enough_extra_ns) return result;
      expand(id);
    }
    result.complete = true;
    return result;
  }

 private:
  size_t at(const Value& value) const { return values_.of(value); }
  bool internal(const Value& value) const { return !graph_.storage(value.storage).external(); }
  int64_t bytes(size_t value) const { return graph_.storage(values_[value].storage).bytes; }
  size_t all_ops() const { return graph_.ops.size(); }

  // Of equal time, the state that is further on first. What was reached before for no more time is
  // passed over at once: most ways to a state differ in the order of ops only.
  void push(State state) {
    const auto [entry, fresh] =
        reached_.try_emplace({state.run, state.counts}, state.extra_ns);
    if (!fresh && entry->second <= state.extra_ns) return;
    entry->second = state.extra_ns;
    const int left = static_cast<int>(all_ops()) - __builtin_popcountll(state.run);
    open_.push({state.extra_ns + least_to_come_ns(state), left, states_.size()});
    states_.push_back(std::move(state));
  }

  // What ops that have run must yet take again: what is missing and needed by an op to come, or as
  // an output, has to be made again, and so has what is missing for that. Running an op lowers this by
  // no more than its own time, so that states come up by the least time of any plan through them.
  int64_t least_to_come_ns(const State& state) {
    needed_.fill(0);
    for (const size_t value : outputs_) needed_[value] = 1;
    int64_t least_ns = 0;
    for (size_t o = all_ops(); o-- > 0;) {
      const Op& op = graph_.ops[o];
      if (has(state.run, o)) {
        const auto missing = [&](size_t value) { return needed_[value] && state.counts[value] == 0; };
        const bool again =
            std::any_of(op.creates.begin(), op.creates.end(),
                        [&](StorageId id) { return missing(at({id, 0})); }) ||
            std::any_of(op.updates.begin(), op.updates.end(), [&](const Value& value) {
              return internal(value) && missing(at(value) + 1);
            });
        if (!again) continue;
        least_ns += op.time_ns;
      }
      for (const size_t value : inputs_[o]) needed_[value] = 1;
    }
    return least_ns;
  }

  bool dominated(size_t id) {
    const State& state = states_[id];
    std::vector<size_t>& rivals = settled_[state.run];
    for (const size_t other : rivals) {
      ++compared_;
      if (states_[other].extra_ns <= state.extra_ns &&
          covers(states_[other].counts, state.counts)) {
        return true;
      }
    }
    rivals.push_back(id);
    return false;
  }

  bool finished(const State& state) const {
    return __builtin_popcountll(state.run) == static_cast<int>(all_ops()) &&
           std::all_of(outputs_.begin(), outputs_.end(),
                       [&](size_t value) { return state.counts[value] > 0; });
  }

  std::vector<OpId> order_to(size_t id) const {
    std::vector<OpId> order;
    for (; id != 0; id = states_[id].parent) order.push_back(states_[id].op);
    std::reverse(order.begin(), order.end());
    return order;
  }

  void expand(size_t id) {
    const OpSet run = states_[id].run;
    if (const std::optional<size_t> free = free_op(states_[id])) {
      finish_run(id, *free, {}, Counts(states_[id].counts));
      return;
    }
    const Counts& useful = useful_from(run);
    for (size_t o = 0; o < all_ops(); ++o) {
      if (!operands_there(states_[id], graph_.ops[o])) continue;
      if (has(run, o) ? may_run_again(states_[id], o, useful) : may_run_first(run, o)) {
        try_op(id, o);
      }
    }
  }

  // An op that is yet to run and could now, changes nothing and leaves no bytes behind: running it first rules
  // out no plan.
  std::optional<size_t> free_op(const State& state) const {
    int64_t resident = 0;
    for (size_t v = 0; v < values_.size(); ++v) resident += state.counts[v] * bytes(v);
    for (size_t o = 0; o < all_ops(); ++o) {
      const Op& op = graph_.ops[o];
      if (has(state.run, o) || !op.updates.empty() || !op.effects.empty()) continue;
      if (resident + op.workspace_bytes > free_bytes_) continue;
      const bool leaves_bytes = std::any_of(op.creates.begin(), op.creates.end(), [&](StorageId id) {
        return graph_.storage(id).bytes > 0;
      });
      if (!leaves_bytes && operands_there(state, op) && may_run_first(state.run, o)) return o;
    }
    return std::nullopt;
  }

  bool external_there(OpSet run, const Value& value) const {
    const std::optional<OpId> next = next_change(graph_, value);
    return (value.version == 0 || has(run, index(maker(graph_, value)))) && !(next && has(run, index(*next)));
  }

  bool operands_there(const State& state, const Op& op) const {
    const auto there = [&](const Value& value) {
      return internal(value) ? state.counts[at(value)] > 0 : external_there(state.run, value);
    };
    return std::all_of(op.reads.begin(), op.reads.end(), there) &&
           std::all_of(op.updates.begin(), op.updates.end(), there);
  }

  bool may_run_first(OpSet run, size_t o) const {
    const Op& op = graph_.ops[o];
    for (const Value& value : op.effects) {
      if (!external_there(run, value)) return false;
    }
    for (size_t other = 0; other < o; ++other) {
      if (has(run, other)) continue;
      if (options_.freedom != Freedom::any_order) return false;
      if (keep_mutual_order(op, graph_.ops[other])) return false;
    }
    return true;
  }

  bool may_run_again(const State& state, size_t o, const Counts& useful) const {
    if (!graph_.rerunnable(static_cast<OpId>(o))) return false;
    const auto wanted = [&](const Value& value) {
      return useful[at(value)] != 0 && state.counts[at(value)] < values_.most_copies(at(value));
    };
    const Op& op = graph_.ops[o];
    return std::any_of(op.creates.begin(), op.creates.end(),
                       [&](StorageId id) {
                         return wanted({id, 0});
                       }) ||
           std::any_of(op.updates.begin(), op.updates.end(), [&](const Value& value) {
             return wanted({value.storage, value.version + 1});
           });
  }

  // By value: whether what is yet to run, or an output, may go back to it.
  const Counts& useful_from(OpSet run) {
    const auto [entry, fresh] = useful_.try_emplace(run);
    Counts& useful = entry->second;
    if (!fresh) return useful;
    for (const size_t value : outputs_) useful[value] = 1;
    for (size_t o = all_ops(); o-- > 0;) {
      const Op& op = graph_.ops[o];
      bool wanted = !has(run, o);
      for (const StorageId id : op.creates) wanted |= useful[at({id, 0})] != 0;
      for (const Value& value : op.updates) wanted |= internal(value) && useful[at(value) + 1] != 0;
      if (!wanted) continue;
      for (const size_t value : inputs_[o]) useful[value] = 1;
    }
    return useful;
  }

  // Runs the op, with every choice of sources that end here and give their place to a result.
  void try_op(size_t id, size_t o) {
    const Op& op = graph_.ops[o];
    std::vector<size_t> sources;
    for (const Reuse& reuse : op.reuse) {
      if (graph_.storage(reuse.source).external()) continue;
      const size_t source = at(source_of(op, reuse));
      if (std::find(sources.begin(), sources.end(), source) == sources.end()) {
        sources.push_back(source);
      }
    }
    for (size_t choice = 0; choice < size_t{1} << sources.size(); ++choice) {
      std::vector<size_t> ending;
      for (size_t k = 0; k < sources.size(); ++k) {
        if (choice >> k & 1) ending.push_back(sources[k]);
      }
      try_with_ending(id, o, ending);
    }
  }

  void try_with_ending(size_t id, size_t o, const std::vector<size_t>& ending) {
    const Op& op = graph_.ops[o];
    Counts before = states_[id].counts;
    for (const size_t source : ending) before[source] = 1;
    const std::optional<int64_t> shared = shared_with(op, ending);
    if (!shared) return;
    int64_t needed = op.workspace_bytes - *shared;
    for (const StorageId created : op.creates) needed += graph_.storage(created).bytes;
    for (size_t v = 0; v < values_.size(); ++v) needed += before[v] * bytes(v);
    // What may be forgotten before the op, largest first.
    std::vector<size_t> spare;
    for (size_t v = 0; v < values_.size(); ++v) {
      const bool operand = std::ranges::find(inputs_[o], v) != inputs_[o].end();
      for (int copy = operand ? 1 : 0; copy < before[v] && bytes(v) > 0; ++copy) spare.push_back(v);
    }
    std::sort(spare.begin(), spare.end(), [&](size_t a, size_t b) {
      return bytes(a) != bytes(b) ? bytes(a) > bytes(b) : a < b;
    });
    forget(id, o, ending, before, spare, 0, needed - free_bytes_);
  }

  // Every least set of spare copies that makes room for `excess` bytes: largest first, so that none
  // of a set that just suffices can be left out.
  void forget(size_t id, size_t o, const std::vector<size_t>& ending, const Counts& before,
              const std::vector<size_t>& spare, size_t next, int64_t excess) {
    if (excess <= 0) {
      finish_run(id, o, ending, before);
      return;
    }
    int64_t left = 0;
    for (size_t k = next; k < spare.size(); ++k) left += bytes(spare[k]);
    for (size_t k = next; k < spare.size() && left >= excess; ++k) {
      left -= bytes(spare[k]);
      if (k > next && spare[k] == spare[k - 1]) continue;  // the same value again
      Counts fewer = before;
      --fewer[spare[k]];
      forget(id, o, ending, fewer, spare, k + 1, excess - bytes(spare[k]));
    }
  }

  // What the ending sources and the results that take their places have in common. None if some
  // source ends for nothing: it may as well stay.
  std::optional<int64_t> shared_with(const Op& op, const std::vector<size_t>& ending) const {
    std::vector<Reuse> taken;
    const auto ends = [&](const Reuse& reuse) {
      return !graph_.storage(reuse.source).external() &&
             std::find(ending.begin(), ending.end(), at(source_of(op, reuse))) != ending.end();
    };
    take_places(std::span(op.reuse), ends, taken);
    if (taken.size() < ending.size()) return std::nullopt;
    int64_t shared = 0;
    for (const Reuse& reuse : taken) shared += shared_bytes(graph_, reuse);
    return shared;
  }

  void finish_run(size_t id, size_t o, const std::vector<size_t>& ending, const Counts& before) {
    const Op& op = graph_.ops[o];
    const bool first = !has(states_[id].run, o);
    State next;
    next.run = with(states_[id].run, o);
    next.counts = before;
    next.extra_ns = states_[id].extra_ns + (first ? 0 : op.time_ns);
    next.parent = id;
    next.op = static_cast<OpId>(o);
    for (const size_t source : ending) next.counts[source] = 0;
    for (const Value& value : op.updates) {
      if (!internal(value)) continue;
      --next.counts[at(value)];
      ++next.counts[at(value) + 1];
    }
    for (const StorageId created : op.creates) ++next.counts[at({created, 0})];
    const Counts& useful = useful_from(next.run);
    for (size_t v = 0; v < values_.size(); ++v) {
      const int most = useful[v] != 0 ? values_.most_copies(v) : 0;
      next.counts[v] = static_cast<uint8_t>(std::min<int>(next.counts[v], most));
    }
    push(std::move(next));
  }

  // Where many states have run the same ops, comparing them takes longer than making them.
  static constexpr size_t kComparisonsPerState = 128;
  static constexpr int64_t kWorkPerState = 1'200;  // 3 µs, more or less

  const Graph& graph_;
  StateSearchOptions options_;
  size_t compared_ = 0;
  int64_t free_bytes_;
  ValueNumbers values_;
  std::vector<size_t> outputs_;  // values
  std::vector<std::vector<size_t>> inputs_;  // by op: values that it reads or updates
  std::array<bool, kMostValues> needed_{};  // scratch
  std::vector<State> states_;
  using Open = std::tuple<int64_t, int, size_t>;  // least time of all re-runs, ops left, state
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open_;
  std::unordered_map<Situation, int64_t, HashSituation> reached_;  // time of re-runs
  std::unordered_map<OpSet, std::vector<size_t>> settled_;  // states by the ops that have run
  std::unordered_map<OpSet, Counts> useful_;
};

}  // namespace

StateSearchResult search_states(const Graph& graph, int64_t budget_bytes, Effort& effort,
                                const StateSearchOptions& options) {
  return Search(graph, budget_bytes, options).run(effort);
}

}  // namespace remat
