// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/chain/cuts.h"

#include <algorithm>
#include <numeric>

#include "remat/core/analysis/uses.h"

namespace remat::detail {
namespace {

// Storages looked at, for all positions together: some 50 ms.
constexpr int64_t kMostLooks = 50'000'000;
// What a block may have of bytes made and of ops, in averages, when cuts are left out. Where that leaves
// too many cuts, so many times more.
constexpr double kLargestBlock = 1.5;
constexpr double kLarger = 1.3;

int32_t position(OpId op) { return static_cast<int32_t>(index(op)); }

class FactFinder {
 public:
  FactFinder(const Graph& graph, const OrderCost& cost, bool strict) : graph_(graph), cost_(cost) {
    facts_.turn = graph.ops.empty() ? 0 : position(turning_point(graph));
    facts_.again.resize(graph.ops.size(), false);
    facts_.kept.resize(cost.value_count(), false);
    facts_.created.resize(cost.value_count(), 0);
    used_again_.resize(graph.storages.size(), false);
    externals_fixed_from_ = strict ? static_cast<int32_t>(graph.ops.size()) : facts_.turn;
  }

  ForwardFacts find() {
    for (size_t v = 0; v < cost_.value_count(); ++v) {
      const Storage& storage = graph_.storage(cost_.storage(static_cast<OrderCost::ValueIndex>(v)));
      if (!storage.external()) facts_.created[v] = position(*storage.creator);
    }
    for (int32_t i = 0; i < facts_.turn; ++i) decide_again(static_cast<OpId>(i));
    list_storages();
    return std::move(facts_);
  }

 private:
  size_t value_of(StorageId storage, int32_t version) const {
    return static_cast<size_t>(cost_.value_of({storage, version}));
  }

  int32_t version_at_turn(const Storage& storage) const {
    return storage.version_before(static_cast<OpId>(facts_.turn));
  }

  // A copy that a later phase overwrites cannot be relied on while blocks are re-run.
  bool overwritten_later(const Storage& storage) const {
    return version_at_turn(storage) < static_cast<int32_t>(storage.changers.size());
  }

  bool readable_again(const Value& value) const {
    const Storage& storage = graph_.storage(value.storage);
    if (storage.external()) {
      const std::optional<OpId> next = next_change(graph_, value);
      return !next || position(*next) >= externals_fixed_from_;
    }
    if (overwritten_later(storage)) return false;
    return !facts_.kept[value_of(value.storage, value.version)] ||
           value.version == version_at_turn(storage);
  }

  void decide_again(OpId id) {
    const Op& op = graph_.op(id);
    const auto makeable = [&](const Value& value) {
      return readable_again(value) && !facts_.kept[value_of(value.storage, value.version)];
    };
    const bool again = graph_.rerunnable(id) &&
                       std::all_of(op.reads.begin(), op.reads.end(),
                                   [&](const Value& value) { return readable_again(value); }) &&
                       std::all_of(op.updates.begin(), op.updates.end(), makeable) &&
                       std::none_of(op.creates.begin(), op.creates.end(), [&](StorageId made) {
                         return overwritten_later(graph_.storage(made));
                       });
    facts_.again[index(id)] = again;
    const auto note = [&](StorageId made, int32_t version) {
      facts_.kept[value_of(made, version)] = !again || is_output(graph_, {made, version});
    };
    for (const StorageId made : op.creates) note(made, 0);
    for (const Value& value : op.updates) {
      if (!graph_.storage(value.storage).external()) note(value.storage, value.version + 1);
    }
    if (!again) return;
    for (const Value& value : op.reads) used_again_[index(value.storage)] = true;
  }

  void list_storages() {
    const Uses uses = uses_of(graph_);
    for (size_t s = graph_.external_count; s < graph_.storages.size(); ++s) {
      const Storage& storage = graph_.storages[s];
      if (position(*storage.creator) >= facts_.turn) continue;
      const StorageId id = static_cast<StorageId>(s);
      ForwardStorage fact{.storage = id, .bytes = storage.bytes};
      fact.value = static_cast<OrderCost::ValueIndex>(value_of(id, version_at_turn(storage)));
      fact.created = fact.last_forward = position(*storage.creator);
      for (const OpId use : uses.of[s]) {
        if (position(use) < facts_.turn) {
          fact.last_forward = position(use);
        } else {
          fact.first_backward = std::min(fact.first_backward, position(use));
          fact.last_backward = position(use);
        }
      }
      if (!facts_.kept[static_cast<size_t>(fact.value)]) {
        facts_.storages.push_back(fact);
      } else if (storage.output || fact.last_backward >= 0 || used_again_[s]) {
        facts_.kept_bytes += storage.bytes;
      }
    }
  }

  const Graph& graph_;
  const OrderCost& cost_;
  ForwardFacts facts_;
  std::vector<bool> used_again_;  // by storage: read by an op that may run again
  int32_t externals_fixed_from_ = 0;
};

// Running sums over forward positions, from what is added to stretches [from, to].
class Stretches {
 public:
  explicit Stretches(int32_t length) : steps_(static_cast<size_t>(length) + 2, 0) {}
  void add(int32_t from, int32_t to, int64_t amount) {
    if (from > to) return;
    steps_[static_cast<size_t>(from)] += amount;
    steps_[static_cast<size_t>(to) + 1] -= amount;
  }
  std::vector<int64_t> sums() && {
    std::partial_sum(steps_.begin(), steps_.end(), steps_.begin());
    return std::move(steps_);
  }

 private:
  std::vector<int64_t> steps_;
};

std::vector<int64_t> crossing_bytes(const ForwardFacts& facts) {
  Stretches bytes(facts.turn);
  for (const ForwardStorage& fact : facts.storages) {
    bytes.add(fact.created + 1, fact.last_forward, fact.bytes);
  }
  return std::move(bytes).sums();
}

// From 1 to the turn.
std::vector<int32_t> uncut_chains(const Graph& graph, const ForwardFacts& facts) {
  Stretches chains(facts.turn);
  for (size_t s = graph.external_count; s < graph.storages.size(); ++s) {
    const Storage& storage = graph.storages[s];
    for (const OpId changer : storage.changers) {
      if (position(changer) < facts.turn)
        chains.add(position(*storage.creator) + 1, position(changer), 1);
    }
  }
  const std::vector<int64_t> inside = std::move(chains).sums();
  std::vector<int32_t> positions;
  for (int32_t p = 1; p < facts.turn; ++p) {
    if (inside[static_cast<size_t>(p)] == 0) positions.push_back(p);
  }
  if (facts.turn > 0) positions.push_back(facts.turn);
  return positions;
}

// How much of the step lies before each forward position, as shares of bytes made and of ops.
std::vector<double> progress(const ForwardFacts& facts) {
  double total_bytes = 1;
  for (const ForwardStorage& fact : facts.storages) total_bytes += static_cast<double>(fact.bytes);
  std::vector<double> share(static_cast<size_t>(facts.turn) + 1, 0);
  for (const ForwardStorage& fact : facts.storages) {
    share[static_cast<size_t>(fact.created) + 1] += static_cast<double>(fact.bytes) / total_bytes;
  }
  for (size_t p = 1; p < share.size(); ++p) share[p] += 1.0 / facts.turn;
  std::partial_sum(share.begin(), share.end(), share.begin());
  return share;
}

// Where backward is done with what lies after a forward position, and where it first needs
// something from before it that is not in the bundle anyway. The cut belongs between the two.
class BackwardPositions {
 public:
  BackwardPositions(const Graph& graph, const ForwardFacts& facts) : facts_(facts) {
    const size_t length = static_cast<size_t>(facts.turn) + 1;
    done_.resize(length, facts.turn);
    first_.resize(length, static_cast<int32_t>(graph.ops.size()));
    for (const ForwardStorage& fact : facts.storages) {
      int32_t& done = done_[static_cast<size_t>(fact.created)];
      done = std::max(done, fact.last_backward + 1);
      const size_t past = static_cast<size_t>(fact.last_forward) + 1;
      first_[past] = std::min(first_[past], fact.first_backward);
    }
    for (size_t p = length - 1; p-- > 0;) done_[p] = std::max(done_[p], done_[p + 1]);
    for (size_t p = 1; p < length; ++p) first_[p] = std::min(first_[p], first_[p - 1]);
    note_readers(graph);
  }

  // The last block has no forward: it is what can be done from the turn on with what its first
  // reader reads, such as the loss. All else that backward needs may wait for its re-run.
  int32_t after_first_read() const {
    int32_t first = ForwardStorage::kNever, second = ForwardStorage::kNever;
    for (const ForwardStorage& fact : facts_.storages) first = std::min(first, fact.first_backward);
    for (const ForwardStorage& fact : facts_.storages) {
      if (fact.first_backward > first) second = std::min(second, fact.first_backward);
    }
    return past_readers(second);
  }

  int32_t at(int32_t forward) {
    const int32_t done = done_[static_cast<size_t>(forward)];
    const int32_t first = first_[static_cast<size_t>(forward)];
    // As late as possible: an op that reads only the bundle then belongs to the block that begins with
    // it, and nothing is re-run for that op. But before ops that read no activation: the bundle would
    // be kept while they run.
    if (done <= first) return past_readers(first);
    // Looking at every storage for every position would be quadratic in a large graph.
    if (looks_left_ < static_cast<int64_t>(facts_.storages.size())) return done;
    looks_left_ -= static_cast<int64_t>(facts_.storages.size());
    // Backward is not quite in reverse. Either the bundle grows by what is needed early, or what is
    // needed late stays resident through the earlier blocks: the fewer bytes.
    int64_t early_bytes = 0, late_bytes = 0;
    for (const ForwardStorage& fact : facts_.storages) {
      if (fact.created >= forward) {
        late_bytes += fact.last_backward >= first ? fact.bytes : 0;
      } else {
        early_bytes += fact.last_forward < forward && fact.first_backward < done ? fact.bytes : 0;
      }
    }
    return early_bytes <= late_bytes ? done : first;
  }

 private:
  void note_readers(const Graph& graph) {
    std::vector<bool> remade(graph.storages.size(), false);
    for (const ForwardStorage& fact : facts_.storages) remade[index(fact.storage)] = true;
    past_reader_.resize(graph.ops.size() + 1, facts_.turn);
    for (size_t i = static_cast<size_t>(facts_.turn); i < graph.ops.size(); ++i) {
      const std::vector<Value>& reads = graph.ops[i].reads;
      const bool reader = std::any_of(reads.begin(), reads.end(), [&](const Value& value) {
        return remade[index(value.storage)];
      });
      past_reader_[i + 1] = reader ? static_cast<int32_t>(i) + 1 : past_reader_[i];
    }
  }

  // The position behind the last op before `end` that reads what forward made.
  int32_t past_readers(int32_t end) const {
    return past_reader_[std::min(static_cast<size_t>(end), past_reader_.size() - 1)];
  }

  const ForwardFacts& facts_;
  std::vector<int32_t> past_reader_;   // by position
  std::vector<int32_t> done_, first_;  // by forward position
  int64_t looks_left_ = kMostLooks;
};

}  // namespace

ForwardFacts forward_facts(const Graph& graph, const OrderCost& cost, bool strict) {
  return FactFinder(graph, cost, strict).find();
}

std::vector<ChainCut> chain_cuts(const Graph& graph, const ForwardFacts& facts) {
  BackwardPositions backward(graph, facts);
  const int32_t end = static_cast<int32_t>(graph.ops.size());
  std::vector<ChainCut> cuts{{0, end}};
  for (const int32_t forward : uncut_chains(graph, facts)) {
    const int32_t undone =
        forward == facts.turn ? backward.after_first_read() : backward.at(forward);
    cuts.push_back({forward, std::min(undone, cuts.back().backward)});
  }
  if (facts.turn > 0) cuts.push_back({facts.turn, facts.turn});
  return cuts;
}

int64_t bundle_sizes(const ForwardFacts& facts) {
  int64_t sum = 0;
  for (const ForwardStorage& fact : facts.storages) sum += fact.last_forward - fact.created;
  return sum;
}

std::vector<ChainCut> fewer_cuts(const ForwardFacts& facts, std::vector<ChainCut> cuts,
                                 size_t most) {
  most = std::max<size_t>(most, 2);
  if (cuts.size() <= most) return cuts;
  const std::vector<int64_t> bytes = crossing_bytes(facts);
  const std::vector<double> shares = progress(facts);
  const auto share = [&](size_t i) { return shares[static_cast<size_t>(cuts[i].forward)]; };
  const double average = shares.back() / static_cast<double>(most - 1);
  for (double largest = kLargestBlock * average; cuts.size() > most; largest *= kLarger) {
    const size_t n = cuts.size();
    std::vector<size_t> before(n), after(n), dearest(n - 2);
    std::iota(before.begin() + 1, before.end(), size_t{0});
    std::iota(after.begin(), after.end(), size_t{1});
    std::iota(dearest.begin(), dearest.end(), size_t{1});
    std::stable_sort(dearest.begin(), dearest.end(), [&](size_t a, size_t b) {
      return bytes[static_cast<size_t>(cuts[a].forward)] >
             bytes[static_cast<size_t>(cuts[b].forward)];
    });
    std::vector<bool> gone(n, false);
    size_t left = n;
    for (const size_t i : dearest) {
      if (left <= most) break;
      if (share(after[i]) - share(before[i]) > largest) continue;
      gone[i] = true;
      after[before[i]] = after[i];
      before[after[i]] = before[i];
      --left;
    }
    std::vector<ChainCut> rest;
    for (size_t i = 0; i < n; ++i) {
      if (!gone[i]) rest.push_back(cuts[i]);
    }
    cuts = std::move(rest);
  }
  return cuts;
}

}  // namespace remat::detail
