// SPDX-License-Identifier: Apache-2.0

// rotor. Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for heterogeneous
// chains: how to train deep neural networks with limited memory, 2019; on graphs that need not be
// chains.
//
// The core is the table of ChainTable: the least re-run time for every stretch of blocks in every
// amount of memory, where a block may be passed (only what leaves it is kept), saved (with its
// whole tape) or, later, run again.
//
// Four blocks, memory for two bundles and one tape (' is a re-run):
//
//     pass 0  pass 1  pass 2  run 3  undo 3  run 2'  undo 2  pass 0'  run 1'  undo 1  run 0'  undo 0
//     bundles at the entries of    2 and 3          2                 1
//
// Stages:
//  1. cuts     every position of forward that cuts no in-place chain (chain/cuts). Blocks are thus
//              mostly single ops, and "save" and "pass" decide about single values.
//  2. blocks   times, tapes, bundles and peaks between the cuts (chain/blocks).
//  3. groups   a chain of many blocks is solved as one of groups, cut where bundles are small. A
//              group may save a part of its tape (chain/savings), and one that is re-run is solved
//              as a chain of its own, so that deep networks still recompute like log n.
//  4. tables   (chain/table) one for each of a few sizes of memory, halves of what keeping
//              everything needs. What is in a table does not depend on the budget, so neighbouring
//              budgets choose from nearly the same plans and more memory is hardly ever slower.
//  5. orders   a table's plans from the fastest on, without re-runs that no op needs, until one
//              fits by the exact model. Tables count memory in slots, and one block at a time, so that
//              their bytes are off by a little; those of the plan that is returned are exact.
//
// Left to others (search): other orders of forward and backward, and schedules that drop a
// checkpoint early and make it again, which rotor leaves out and which matter near the floor.

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "remat/core/analysis/uses.h"
#include "remat/core/error.h"
#include "remat/core/order/reruns.h"
#include "remat/core/rewrite.h"
#include "remat/core/strategies/chain/savings.h"
#include "remat/core/strategies/chain/table.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

using detail::Chain;
using detail::ChainBlock;
using detail::ChainCut;
using detail::ChainAction;
using detail::ChainStep;
using detail::ChainTable;
using detail::concat;
using detail::ForwardFacts;

// Blocks of the chains that are solved as a whole. More of them are finer, fewer leave room for
// more slots, and none is best on all graphs.
constexpr std::array<size_t, 2> kMostBlocks = {110, 50};
constexpr size_t kMostFineBlocks = 2'000;     // that these stand for
constexpr int64_t kMostBundled = 10'000'000;  // storages in bundles, all cuts together
constexpr size_t kSavings = 8;                // of a group, beside its whole tape
constexpr double kMostSums = 5e7;             // for one table: some 40 ms
constexpr double kMostTableBytes = 100e6;
// The largest table has a twentieth more than keeping everything needs: what it holds is rounded up.
constexpr int64_t kMarginPart = 20;
// Of effort.h, measured.
constexpr double kWorkPerSum = 0.32;
constexpr int64_t kWorkPerOpOfBlocks = 100;   // to measure blocks, and again for groups of them
// Slots of memory. Each block may round up by a slot, so that long chains need more of them.
constexpr size_t kFewestSlots = 150;
constexpr size_t kMostSlots = 600;
constexpr size_t kSlotsPerBlock = 10;
// Tables beside the one for the budget, each for half the memory of the one before.
constexpr int kSmallerTables = 1;
constexpr int kMostTables = 10;
// How far beyond the budget a table's plan is still tried: its count of bytes may be too high.
constexpr double kOptimism = 1.25;
// Plans looked at for the lowest peak where the budget is out of reach.
constexpr int kSmallestPlans = 8;

int64_t common_divisor_bytes(const Graph& graph) {
  int64_t divisor = 0;
  for (const Storage& storage : graph.storages) {
    if (!storage.external()) divisor = std::gcd(divisor, storage.bytes);
  }
  for (const Op& op : graph.ops) divisor = std::gcd(divisor, op.workspace_bytes);
  return std::max<int64_t>(divisor, 1);
}

const std::vector<OpId>& ops_of(const ChainStep& step) {
  switch (step.action) {
    case ChainAction::pass: return step.block->pass.ops;
    case ChainAction::save: return step.block->savings[step.saving].again.ops;
    case ChainAction::tape: return step.block->tape.ops;
    case ChainAction::held_tape: return step.block->held_tape.ops;
    case ChainAction::backward: break;
  }
  return step.block->savings[step.saving].undo;
}

class ChainPlanner {
 public:
  ChainPlanner(const Graph& graph, const PlanOptions& options, bool strict, Effort& effort)
      : graph_(graph),
        options_(options),
        effort_(effort),
        cost_(graph),
        divisor_bytes_(common_divisor_bytes(graph)) {
    facts_ = detail::forward_facts(graph, cost_, strict);
    keep_all_ = cost_.evaluate(given_order(graph), options.budget_bytes);
    std::vector<ChainCut> cuts = detail::chain_cuts(graph, facts_);
    if (detail::bundle_sizes(facts_) > kMostBundled) {
      cuts = detail::fewer_cuts(facts_, cuts, kMostFineBlocks + 1);
    }
    if (cuts.size() < 2) return;
    blocks_ = measured(cuts);
    const std::vector<ChainCut> fine_cuts = detail::fewer_cuts(facts_, cuts, kMostFineBlocks + 1);
    const Chain fine = fine_cuts == cuts ? blocks_ : grouped(blocks_, fine_cuts).chain;
    for (const size_t most : kMostBlocks) {
      if (fine.blocks.size() <= most) {
        levels_ = {Level{fine, {}}};
        break;
      }
      levels_.push_back(grouped(fine, detail::fewer_cuts(facts_, fine_cuts, most + 1)));
    }
  }

  // Tries plans until the fastest that fits is known. False: an order was not legal.
  bool plan() {
    for (const Level& level : levels_) {
      if (!plan(level)) return false;
    }
    return true;
  }

  struct Found {
    std::vector<OpId> order;
    int64_t peak_bytes = 0;
    int64_t time_ns = 0;
  };
  // The fastest that fits; if none does, the one with the lowest peak, if there is one.
  const std::optional<Found>& best() const { return best_ ? best_ : lowest_; }

  std::vector<Decision> decisions(const std::vector<OpId>& order) const;

 private:
  enum class Outcome : uint8_t { fits, tried, too_long, nothing_fits, illegal };

  // A chain and, for each of its blocks, the finer one that it stands for; none if there is none.
  struct Level {
    Chain chain;
    std::vector<Chain> finer;
  };

  Chain measured(const std::vector<ChainCut>& cuts) {
    effort_.spend(kWorkPerOpOfBlocks * static_cast<int64_t>(graph_.ops.size()));
    return detail::chain_blocks(graph_, cost_, facts_, cuts);
  }

  Level grouped(const Chain& fine, const std::vector<ChainCut>& cuts) {
    Level level{measured(cuts), {}};
    size_t begin = 0;
    for (ChainBlock& group : level.chain.blocks) {
      size_t end = begin + 1;
      while (fine.blocks[end - 1].exit != group.exit) ++end;
      level.finer.push_back(fine.stretch(begin, end));
      std::vector<ChainBlock::Saving> partial =
          detail::partial_savings(level.finer.back(), kSavings);
      std::move(partial.begin(), partial.end(), std::back_inserter(group.savings));
      begin = end;
    }
    return level;
  }

  bool plan(const Level& level) {
    const int64_t always = graph_.external_bytes() + facts_.kept_bytes;
    const int64_t available = std::max<int64_t>(0, options_.budget_bytes - graph_.external_bytes());
    const double promising = kOptimism * static_cast<double>(available);
    const int64_t kept = keep_all_.peak_bytes - always;
    const int64_t all = std::max<int64_t>(1, kept + kept / kMarginPart);
    int largest = 0;
    while (largest < kMostTables - 1 && static_cast<double>(all >> (largest + 1)) > promising) {
      ++largest;
    }
    for (int j = largest; j < kMostTables && (all >> j) > 0 && !effort_.exhausted(); ++j) {
      if (best_ && (j > largest + kSmallerTables || best_->time_ns == keep_all_.time_ns)) break;
      const Outcome outcome = with_table(
          level, all >> j, [&](const ChainTable& table) { return try_fastest(table, promising); });
      if (outcome == Outcome::illegal) return false;
      if (outcome == Outcome::nothing_fits) break;
    }
    // Nothing fits: the lowest plan that any table knows, as the answer to what would.
    Outcome outcome = Outcome::nothing_fits;
    for (int j = largest; !best_ && outcome == Outcome::nothing_fits && j >= 0; --j) {
      if (effort_.exhausted()) break;
      outcome =
          with_table(level, all >> j, [&](const ChainTable& table) { return try_smallest(table); });
    }
    return outcome != Outcome::illegal;
  }

  // For each slot of a table and of the tables under it.
  struct TableSize {
    double sums = 0;
    double pairs = 0;
    explicit TableSize(const Level& level) {
      add(level.chain);
      for (const Chain& chain : level.finer) add(chain);
    }
    void add(const Chain& chain) {
      const double n = static_cast<double>(chain.blocks.size());
      sums += n * n * n / 6 + 1;
      pairs += n * (n + 1) / 2;
    }
  };

  template <typename Use>
  Outcome with_table(const Level& level, int64_t bytes, Use use) {
    const TableSize size(level);
    const size_t enough = std::min(kMostSlots, kFewestSlots + kSlotsPerBlock * level.chain.blocks.size());
    size_t slots = std::clamp(
        static_cast<size_t>(std::min(kMostSums / size.sums, kMostTableBytes /
                                                                (size.pairs * ChainTable::kBytesPerSlot))),
        kFewestSlots, enough);
    int64_t unit = (bytes + static_cast<int64_t>(slots) - 1) / static_cast<int64_t>(slots);
    // With few distinct sizes the table can be exact.
    if (bytes / divisor_bytes_ <= static_cast<int64_t>(slots)) unit = divisor_bytes_;
    slots = static_cast<size_t>(bytes / unit);
    effort_.spend(static_cast<int64_t>(kWorkPerSum * size.sums * static_cast<double>(slots)));
    std::vector<ChainTable> finer_tables;
    finer_tables.reserve(level.finer.size());
    for (const Chain& chain : level.finer) finer_tables.emplace_back(chain, unit, slots);
    const ChainTable table(level.chain, unit, slots, finer_tables);
    return std::isfinite(table.time_ns(slots)) ? use(table) : Outcome::nothing_fits;
  }

  // From the fastest plan to the slowest, until one fits.
  Outcome try_fastest(const ChainTable& table, double promising_bytes) {
    const double last = promising_bytes / static_cast<double>(table.unit_bytes());
    const size_t slots = table.slots();
    size_t slot = last < static_cast<double>(slots) ? static_cast<size_t>(last) : slots;
    for (; std::isfinite(table.time_ns(slot)) && !effort_.exhausted(); --slot) {
      const bool smaller_does = slot > 0 && table.time_ns(slot - 1) == table.time_ns(slot);
      if (smaller_does) continue;
      const Outcome outcome = try_plan(table, slot);
      if (outcome != Outcome::tried || slot == 0) return outcome;
    }
    return Outcome::tried;
  }

  // The plans for the least memory the table knows.
  Outcome try_smallest(const ChainTable& table) {
    size_t slot = 0;
    while (!std::isfinite(table.time_ns(slot))) ++slot;
    Outcome outcome = Outcome::tried;
    for (int plans = 0; plans < kSmallestPlans && outcome == Outcome::tried; ++plans) {
      outcome = try_plan(table, slot);
      const float time = table.time_ns(slot);
      while (slot < table.slots() && table.time_ns(slot) == time) ++slot;
    }
    return outcome;
  }

  Outcome try_plan(const ChainTable& table, size_t slot) {
    std::optional<std::vector<OpId>> order = order_of(table.steps(slot));
    if (!order) return Outcome::too_long;
    effort_.spend(OrderCost::kWorkPerOp * static_cast<int64_t>(order->size()));
    const OrderCost::Result result = cost_.evaluate(*order, options_.budget_bytes);
    if (!result.legal) return Outcome::illegal;
    ++tried_;
    const bool fits = result.peak_bytes <= options_.budget_bytes;
    Found found{std::move(*order), result.peak_bytes, result.time_ns};
    if (fits) {
      if (!best_ || found.time_ns < best_->time_ns) best_ = std::move(found);
    } else if (!lowest_ || found.peak_bytes < lowest_->peak_bytes) {
      lowest_ = std::move(found);
    }
    report();
    return fits ? Outcome::fits : Outcome::tried;
  }

  void report() const {
    if (!options_.progress) return;
    const Found& found = *best();
    options_.progress({.strategy = "chain_dp",
                       .orders = tried_,
                       .best_peak_bytes = found.peak_bytes,
                       .best_time_ns = found.time_ns});
  }

  // None if it takes too many runs.
  std::optional<std::vector<OpId>> order_of(const std::vector<ChainStep>& steps) {
    std::vector<OpId> order;
    for (const ChainStep& step : steps) {
      const ChainBlock& block = *step.block;
      if (step.first && step.action != ChainAction::backward) {
        for (int32_t i = block.entry.forward; i < block.exit.forward; ++i) {
          order.push_back(static_cast<OpId>(i));
        }
      } else {
        const std::vector<OpId>& ops = ops_of(step);
        order.insert(order.end(), ops.begin(), ops.end());
      }
      if (static_cast<int64_t>(order.size()) > most_runs(options_)) return std::nullopt;
    }
    erase_dead(graph_, cost_, order, effort_);
    return order;
  }

  const Graph& graph_;
  const PlanOptions& options_;
  Effort& effort_;
  OrderCost cost_;
  int64_t divisor_bytes_;
  ForwardFacts facts_;
  OrderCost::Result keep_all_;
  Chain blocks_;  // the finest
  std::vector<Level> levels_;
  std::optional<Found> best_, lowest_;
  int64_t tried_ = 0;
};

std::vector<Decision> ChainPlanner::decisions(const std::vector<OpId>& order) const {
  std::vector<int64_t> runs(graph_.ops.size(), 0);
  for (const OpId op : order) ++runs[index(op)];
  const std::vector<ChainBlock>& blocks = blocks_.blocks;
  std::vector<Decision> decisions;
  const Uses uses = uses_of(graph_);
  for (const Candidate& candidate : candidates_of(graph_, uses, static_cast<OpId>(facts_.turn))) {
    const OpId creator = *graph_.storage(candidate.storage).creator;
    const int32_t position = static_cast<int32_t>(index(creator));
    const auto block = std::upper_bound(
        blocks.begin(), blocks.end(), position,
        [](int32_t at, const ChainBlock& other) { return at < other.exit.forward; });
    const int64_t again = runs[index(creator)] - 1;
    const std::string where = concat("block ", block - blocks.begin() + 1, " of ", blocks.size());
    decisions.push_back(
        {candidate.storage, again > 0,
         again > 0
             ? concat("its ", where, " is re-run ", again, again == 1 ? " time" : " times")
             : concat("it is saved on the tape of its ", where, ", or where that is entered")});
  }
  return decisions;
}

}  // namespace

Plan plan_chain_dp(const Graph& graph, const PlanOptions& options, Effort& effort) {
  Plan keep_all = keep_all_instead(graph, options, "chain_dp", "");
  if (keep_all.feasible) return keep_all;
  for (const bool strict : {false, true}) {
    if (effort.exhausted()) break;
    ChainPlanner planner(graph, options, strict, effort);
    if (!planner.plan()) continue;
    if (!planner.best() || planner.best()->peak_bytes >= keep_all.peak_bytes) break;
    Plan plan = make_plan(graph, "chain_dp", planner.best()->order, options.budget_bytes);
    plan.decisions = planner.decisions(plan.order);
    return plan;
  }
  keep_all.note =
      "no chain of blocks that can be re-run was found; this is the plan that keeps everything";
  return keep_all;
}

}  // namespace remat
