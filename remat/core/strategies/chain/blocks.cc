// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/chain/blocks.h"

#include <algorithm>

#include "remat/core/reuse.h"

namespace remat::detail {
namespace {

using ValueIndex = OrderCost::ValueIndex;

size_t at(ValueIndex value) { return static_cast<size_t>(value); }

// The live values of an order in which no op stands twice, read from its end. Not counted are the bytes of
// values created before `counted_from`, of kept ones, and of those that `hold` names.
class LiveValues {
 public:
  LiveValues(const Graph& graph, const OrderCost& cost, const ForwardFacts& facts)
      : graph_(graph),
        cost_(cost),
        facts_(facts),
        live_(cost.value_count(), false),
        held_(cost.value_count(), false) {}

  void count_from(int32_t position) { counted_from_ = position; }
  int64_t now_bytes() const { return now_bytes_; }

  void hold(std::span<const ValueIndex> values) {
    for (const ValueIndex value : values) {
      if (live_[at(value)]) now_bytes_ -= weight(value);
      held_[at(value)] = true;
    }
  }
  // Demands that none of them is live and counted.
  void let_go(std::span<const ValueIndex> values) {
    for (const ValueIndex value : values) held_[at(value)] = false;
  }

  void need(ValueIndex value) {
    if (live_[at(value)]) return;
    live_[at(value)] = true;
    touched_.push_back(value);
    now_bytes_ += weight(value);
  }

  // Moves to before the op; the bytes resident while it runs.
  int64_t step_before(OpId op) {
    int64_t during = now_bytes_ + graph_.op(op).workspace_bytes;
    for (const ValueIndex created : cost_.creates(op)) {
      if (live_[at(created)]) {
        forget(created);
      } else {
        during += weight(created);
      }
    }
    for (const OrderCost::Update& update : cost_.updates(op)) {
      if (live_[at(update.after)]) {
        forget(update.after);
      } else {
        during += weight(update.after);
      }
      need(update.before);
    }
    during -= shared_bytes(op);
    for (const ValueIndex read : cost_.reads(op)) {
      if (!live_[at(read)]) during += weight(read);
      need(read);
    }
    return during;
  }

  // What these ops create is no longer counted. To be followed by count_from.
  void stop_counting(int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; ++i) {
      for (const ValueIndex first : cost_.creates(static_cast<OpId>(i))) {
        const int32_t versions = graph_.last_version(cost_.storage(first));
        for (ValueIndex value = first; value <= first + versions; ++value) {
          if (live_[at(value)]) now_bytes_ -= weight(value);
        }
      }
    }
  }

  void clear() {
    for (const ValueIndex value : touched_) live_[at(value)] = false;
    touched_.clear();
    now_bytes_ = 0;
  }

 private:
  int64_t weight(ValueIndex value) const {
    if (facts_.created[at(value)] < counted_from_) return 0;
    return facts_.kept[at(value)] || held_[at(value)] ? 0 : cost_.bytes(value);
  }

  void forget(ValueIndex value) {
    live_[at(value)] = false;
    now_bytes_ -= weight(value);
  }

  // Of results that take the place of what dies here; what weighs nothing has nothing to share.
  int64_t shared_bytes(OpId op) {
    const auto dies = [&](const OrderCost::ReusePair& pair) {
      return !live_[at(pair.source)] && weight(pair.source) != 0 && weight(pair.result) != 0;
    };
    take_places(cost_.reuse(op), dies, taken_);
    int64_t bytes = 0;
    for (const OrderCost::ReusePair& pair : taken_) bytes += pair.shared_bytes;
    return bytes;
  }

  const Graph& graph_;
  const OrderCost& cost_;
  const ForwardFacts& facts_;
  std::vector<bool> live_, held_;  // by value
  std::vector<ValueIndex> touched_;
  std::vector<OrderCost::ReusePair> taken_;
  int32_t counted_from_ = 0;
  int64_t now_bytes_ = 0;
};

class Measurer {
 public:
  Measurer(const Graph& graph, const OrderCost& cost, const ForwardFacts& facts,
           std::span<const ChainCut> cuts)
      : graph_(graph), cost_(cost), facts_(facts), cuts_(cuts), live_(graph, cost, facts) {
    wanted_.resize(cost.value_count(), false);
    held_.resize(cost.value_count(), false);
  }

  Chain measure() {
    chain_.blocks.resize(cuts_.size() - 1);
    sort_storages();
    for (size_t b = 0; b < chain_.blocks.size(); ++b) measure_forward(b);
    measure_backward();
    return std::move(chain_);
  }

 private:
  // Which bundles and which tape a storage is part of. Both last from the first cut after it.
  void sort_storages() {
    bundle_.resize(cuts_.size());
    tape_.resize(chain_.blocks.size());
    size_t block = 0;
    for (const ForwardStorage& fact : facts_.storages) {
      while (cuts_[block + 1].forward <= fact.created) ++block;
      size_t last = block;
      while (last + 1 < cuts_.size() && (cuts_[last + 1].forward <= fact.last_forward ||
                                         cuts_[last + 1].backward > fact.first_backward)) {
        bundle_[++last].push_back(fact.value);
      }
      if (last > block) {
        chain_.spans.push_back(
            {static_cast<int32_t>(block) + 1, static_cast<int32_t>(last), fact.bytes});
      }
      if (fact.last_backward >= cuts_[block + 1].backward) tape_[block].push_back(fact.value);
    }
  }

  void measure_forward(size_t b) {
    ChainBlock& block = chain_.blocks[b];
    block.entry = cuts_[b];
    block.exit = cuts_[b + 1];
    const std::vector<ValueIndex>& exit = bundle_[b + 1];
    std::vector<ValueIndex> both = exit;
    both.insert(both.end(), tape_[b].begin(), tape_[b].end());
    std::vector<OpId> all;
    for (int32_t i = block.entry.forward; i < block.exit.forward; ++i) {
      all.push_back(static_cast<OpId>(i));
    }
    live_.count_from(block.entry.forward);
    block.pass = rerun(all, exit);
    block.tape = rerun(all, tape_[b]);
    ChainBlock::Saving& saving = block.savings.emplace_back();
    saving.again = rerun(all, both);
    for (int32_t i = block.exit.backward; i < block.entry.backward; ++i) {
      saving.undo.push_back(static_cast<OpId>(i));
    }
    measure_held_tape(b, all);
    block.first_pass_bytes = peak(all, exit);
    block.first_save_bytes = peak(all, both);
    for (const ValueIndex value : both) live_.need(value);
    saving.bytes = live_.now_bytes();
    live_.clear();
    live_.count_from(0);
    block.pass_through_bytes = peak(block.pass.ops, exit);
    block.first_pass_through_bytes = peak(all, exit);
  }

  void measure_held_tape(size_t b, std::span<const OpId> all) {
    ChainBlock& block = chain_.blocks[b];
    const std::vector<ValueIndex>& exit = bundle_[b + 1];
    std::vector<ValueIndex> targets;
    for (const ValueIndex value : exit) held_[at(value)] = true;
    for (const ValueIndex value : tape_[b]) {
      if (!held_[at(value)]) targets.push_back(value);
    }
    block.reads_exit = targets.size() < tape_[b].size();
    live_.hold(exit);
    block.held_tape = rerun(all, targets);
    live_.let_go(exit);
    for (const ValueIndex value : exit) held_[at(value)] = false;
  }

  ChainBlock::Rerun rerun(std::span<const OpId> all, std::span<const ValueIndex> targets) {
    std::vector<ValueIndex> marked;
    const auto want = [&](ValueIndex value) {
      wanted_[at(value)] = true;
      marked.push_back(value);
    };
    const auto is_wanted = [&](ValueIndex value) {
      return wanted_[at(value)] && !facts_.kept[at(value)] && !held_[at(value)];
    };
    ChainBlock::Rerun rerun;
    std::for_each(targets.begin(), targets.end(), want);
    for (size_t i = all.size(); i-- > 0;) {
      const OpId op = all[i];
      const auto created = cost_.creates(op);
      const auto updates = cost_.updates(op);
      const bool needed =
          facts_.again[index(op)] &&
          (std::any_of(created.begin(), created.end(), is_wanted) ||
           std::any_of(updates.begin(), updates.end(),
                       [&](const OrderCost::Update& update) { return is_wanted(update.after); }));
      if (!needed) continue;
      rerun.ops.push_back(op);
      rerun.time_ns += graph_.op(op).time_ns;
      for (const ValueIndex read : cost_.reads(op)) want(read);
      for (const OrderCost::Update& update : updates) want(update.before);
    }
    for (const ValueIndex value : marked) wanted_[at(value)] = false;
    std::reverse(rerun.ops.begin(), rerun.ops.end());
    rerun.peak_bytes = peak(rerun.ops, targets);
    return rerun;
  }

  int64_t peak(std::span<const OpId> ops, std::span<const ValueIndex> remaining) {
    for (const ValueIndex value : remaining) live_.need(value);
    int64_t bytes = live_.now_bytes();
    for (size_t i = ops.size(); i-- > 0;) bytes = std::max(bytes, live_.step_before(ops[i]));
    live_.clear();
    return bytes;
  }

  // Re-runs change neither how often backward ops run nor their order. So one pass over them, from the end,
  // finds what is resident of all that the blocks from b on have made.
  void measure_backward() {
    LiveValues with_exit_held(graph_, cost_, facts_);
    for (LiveValues* live : {&live_, &with_exit_held}) {
      live->count_from(0);
      for (const ValueIndex output : cost_.outputs()) live->need(output);
    }
    int32_t position = static_cast<int32_t>(graph_.ops.size());
    for (size_t b = 0; b < chain_.blocks.size(); ++b) {
      ChainBlock& block = chain_.blocks[b];
      with_exit_held.hold(bundle_[b + 1]);
      block.backward_bytes = live_.now_bytes();
      block.held_backward_bytes = with_exit_held.now_bytes();
      while (position > block.exit.backward) {
        const OpId op = static_cast<OpId>(--position);
        block.backward_bytes = std::max(block.backward_bytes, live_.step_before(op));
        block.held_backward_bytes =
            std::max(block.held_backward_bytes, with_exit_held.step_before(op));
      }
      for (LiveValues* live : {&live_, &with_exit_held}) {
        live->stop_counting(block.entry.forward, block.exit.forward);
        live->count_from(block.exit.forward);
      }
      with_exit_held.let_go(bundle_[b + 1]);
      block.gradient_bytes = live_.now_bytes();
    }
    live_.clear();
  }

  const Graph& graph_;
  const OrderCost& cost_;
  const ForwardFacts& facts_;
  std::span<const ChainCut> cuts_;
  LiveValues live_;
  std::vector<bool> wanted_, held_;                     // by value
  std::vector<std::vector<ValueIndex>> bundle_, tape_;  // by cut, by block
  Chain chain_;
};

}  // namespace

Chain Chain::stretch(size_t begin, size_t end) const {
  Chain chain;
  chain.blocks.assign(blocks.begin() + static_cast<std::ptrdiff_t>(begin),
                     blocks.begin() + static_cast<std::ptrdiff_t>(end));
  const int32_t from = static_cast<int32_t>(begin), to = static_cast<int32_t>(end);
  for (const BundleSpan& span : spans) {
    if (span.last < from || span.first > to) continue;
    chain.spans.push_back(
        {std::max(span.first, from) - from, std::min(span.last, to) - from, span.bytes});
  }
  chain.turns = turns && end == blocks.size();
  return chain;
}

Chain chain_blocks(const Graph& graph, const OrderCost& cost, const ForwardFacts& facts,
                   std::span<const ChainCut> cuts) {
  return Measurer(graph, cost, facts, cuts).measure();
}

}  // namespace remat::detail
