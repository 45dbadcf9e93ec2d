// SPDX-License-Identifier: Apache-2.0

// The bound on time, in stages: every plan of the few large storages, if they are most of the graph;
// a chain of cuts through the ops where keeping everything does not fit; the window model for more
// and more of them.

#include "remat/core/exact/bound.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "remat/core/analysis/dependences.h"
#include "remat/core/analysis/operands.h"
#include "remat/core/exact/coarse_graph.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/exact/state_search.h"
#include "remat/core/exact/window_model.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"

namespace remat {
namespace {

constexpr size_t kMostBitsOfSets = size_t{1} << 26;  // 8 MB for all ops; there are two kinds
constexpr size_t kMostCuts = 12;  // more would be a tighter bound and a model that takes longer to solve
// All plans of the large storages come first: where they say something, they say nearly all there is to say. They
// have most of the work, and more and more ops are looked at, since a few are solved in no time. Graphs whose
// large storages hold a smaller part of the bytes than this had next to nothing proven.
constexpr double kLargeShare = 0.8;
constexpr size_t kLargeOps[] = {16, 24, 32, 40, 48, 64};
constexpr double kMostBytes = 0.75;
// Of what is left, for a window model with fewer cuts than most.
constexpr double kFewCutsShare = 0.5;
// A bound so close, as a part of the time, settles it: twice what the solver's gap and tolerances leave open for
// long steps (window_model.cc).
constexpr int64_t kSettledPart = 50'000;

int64_t internal_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Storage& storage : graph.storages) bytes += storage.external() ? 0 : storage.bytes;
  return bytes;
}

// What re-runs must take at least, from more and more of the large storages; none if nothing fits.
std::optional<int64_t> least_extra_of_large(const Graph& graph, int64_t budget_bytes,
                                            Effort& effort, int64_t enough_ns) {
  Effort part = effort.part(static_cast<int64_t>(kLargeShare * static_cast<double>(effort.left())));
  int64_t least_ns = 0;
  size_t seen = 0;  // ops
  for (const size_t most_ops : kLargeOps) {
    const Graph coarse = coarse_graph(graph, most_ops, kMostStateValues);
    const double covered = static_cast<double>(internal_bytes(coarse));
    if (coarse.ops.size() == seen) continue;
    seen = coarse.ops.size();
    if (covered < kMostBytes * static_cast<double>(internal_bytes(graph))) continue;
    const StateSearchResult found =
        search_states(coarse, budget_bytes, part, {.enough_extra_ns = enough_ns});
    if (found.complete && !found.feasible) return std::nullopt;
    least_ns = std::max(least_ns, found.least_extra_ns);
    if (!found.complete) break;
  }
  return least_ns;
}

// The chain of dependent ops along which keeping everything exceeds the budget the most in sum. A
// cut where everything fits would separate windows without forcing anything.
std::vector<OpId> chain_of_cuts(const Graph& graph, const Dependences& dependences,
                                const std::vector<int64_t>& excess_bytes) {
  constexpr int64_t kNone = -1;
  std::vector<double> best(graph.ops.size(), 0);
  std::vector<int64_t> previous(graph.ops.size(), kNone);
  size_t end = 0;
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    for (const OpId before : dependences.before[o]) {
      if (best[index(before)] <= best[o]) continue;
      best[o] = best[index(before)];
      previous[o] = static_cast<int64_t>(index(before));
    }
    best[o] += static_cast<double>(excess_bytes[o]);
    if (best[o] > best[end]) end = o;
  }
  std::vector<OpId> chain;
  for (int64_t o = static_cast<int64_t>(end); o != kNone; o = previous[static_cast<size_t>(o)]) {
    if (excess_bytes[static_cast<size_t>(o)] > 0) chain.push_back(static_cast<OpId>(o));
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

// `count` ops of the chain.
std::vector<OpId> spread(const std::vector<OpId>& chain, const std::vector<int64_t>& excess_bytes,
                         size_t count) {
  std::vector<int64_t> along;
  for (const OpId op : chain) along.push_back(excess_bytes[index(op)]);
  std::vector<OpId> cuts;
  for (const size_t at : largest_in_stretches(along, count)) cuts.push_back(chain[at]);
  return cuts;
}

// By op: how far keeping everything is above the budget while it runs, in the given order.
std::vector<int64_t> excess_of(const Graph& graph, int64_t budget_bytes) {
  const Schedule schedule = rewrite(graph, given_order(graph));
  const Simulation simulation = simulate(graph, schedule);
  std::vector<int64_t> excess(graph.ops.size(), 0);
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind != StepKind::run) continue;
    excess[index(schedule.steps[s].op)] =
        std::max<int64_t>(0, simulation.timeline[s].bytes - budget_bytes);
  }
  return excess;
}

// Sets of numbers below `width`, one for each op.
class SetByOp {
 public:
  SetByOp(size_t ops, size_t width) : words_((width + 63) / 64), bits_(ops * words_, 0) {}

  void insert(OpId op, size_t number) { word(op, number / 64) |= uint64_t{1} << number % 64; }
  bool holds(OpId op, size_t number) const {
    return (word(op, number / 64) >> number % 64 & 1) != 0;
  }
  void add_all(OpId op, OpId other) {
    for (size_t w = 0; w < words_; ++w) word(op, w) |= word(other, w);
  }

 private:
  uint64_t& word(OpId op, size_t w) { return bits_[index(op) * words_ + w]; }
  uint64_t word(OpId op, size_t w) const { return bits_[index(op) * words_ + w]; }

  size_t words_;
  std::vector<uint64_t> bits_;
};

// By op: bytes of values that must not be made twice and that are there at its first run, its own
// inputs apart: made by an ancestor, and an output or an input of a descendant. Nothing where the
// sets would be too large.
std::vector<int64_t> lasting_bytes(const Graph& graph, const Dependences& dependences) {
  const size_t ops = graph.ops.size();
  std::vector<int64_t> bytes(ops, 0);
  const ValueNumbers values(graph);
  std::vector<size_t> lasting;  // values
  constexpr size_t kNot = std::numeric_limits<size_t>::max();
  std::vector<size_t> number(values.size(), kNot);  // by value: its place in `lasting`
  for (size_t v = 0; v < values.size(); ++v) {
    if (graph.storage(values[v].storage).bytes == 0) continue;
    if (graph.rerunnable(maker(graph, values[v]))) continue;
    number[v] = lasting.size();
    lasting.push_back(v);
  }
  if (lasting.empty() || ops * lasting.size() > kMostBitsOfSets) return bytes;

  SetByOp made(ops, lasting.size()), needed(ops, lasting.size());  // before it; after it
  std::vector<std::vector<size_t>> makes(ops), uses(ops);
  for (size_t l = 0; l < lasting.size(); ++l) {
    makes[index(maker(graph, values[lasting[l]]))].push_back(l);
  }
  for (size_t o = 0; o < ops; ++o) {
    for (const Value& value : internal_inputs(graph, graph.ops[o])) {
      if (number[values.of(value)] != kNot) uses[o].push_back(number[values.of(value)]);
    }
  }
  // The graph's own order is a legal one.
  for (size_t o = 0; o < ops; ++o) {
    for (const OpId before : dependences.before[o]) {
      made.add_all(static_cast<OpId>(o), before);
      for (const size_t l : makes[index(before)]) made.insert(static_cast<OpId>(o), l);
    }
  }
  for (size_t o = ops; o-- > 0;) {
    for (const OpId after : dependences.after[o]) {
      needed.add_all(static_cast<OpId>(o), after);
      for (const size_t l : uses[index(after)]) needed.insert(static_cast<OpId>(o), l);
    }
  }
  const auto there = [&](size_t o, size_t l) {
    const Value& value = values[lasting[l]];
    const OpId op = static_cast<OpId>(o);
    return made.holds(op, l) && (needed.holds(op, l) || is_output(graph, value));
  };
  for (size_t o = 0; o < ops; ++o) {
    for (size_t l = 0; l < lasting.size(); ++l) {
      if (there(o, l)) bytes[o] += graph.storage(values[lasting[l]].storage).bytes;
    }
    for (const size_t l : uses[o]) {
      if (there(o, l)) bytes[o] -= graph.storage(values[lasting[l]].storage).bytes;
    }
  }
  return bytes;
}

}  // namespace

std::optional<int64_t> lower_bound_time_ns(const Graph& graph, int64_t budget_bytes, Effort& effort,
                                           const BoundOptions& options) {
  if (graph.ops.empty()) return 0;
  if (lower_bound_peak_bytes(graph) > budget_bytes) return std::nullopt;
  const int64_t once_ns = graph.total_time_ns();
  const std::vector<int64_t> excess = excess_of(graph, budget_bytes);
  const Dependences dependences = dependences_of(graph);
  const std::vector<OpId> chain = chain_of_cuts(graph, dependences, excess);
  if (chain.empty()) return once_ns;

  const std::optional<int64_t> of_large =
      options.coarse ? least_extra_of_large(graph, budget_bytes, effort, options.enough_ns - once_ns) : 0;
  if (!of_large) return std::nullopt;
  if (!has_solver()) return once_ns + *of_large;
  int64_t extra_ns = *of_large;
  const size_t most = std::min(chain.size(), kMostCuts);
  for (size_t count = 1;
       count <= most && !effort.exhausted() && !attains(options.enough_ns, once_ns + extra_ns);
       count = count == most ? most + 1 : std::min(most, count * 2)) {
    const WindowModel model(graph, dependences, spread(chain, excess, count), budget_bytes);
    const double share = count == most ? 1.0 : kFewCutsShare;
    Effort part = effort.part(static_cast<int64_t>(share * static_cast<double>(effort.left())));
    const WindowModel::Answer answer = model.solve(part, options.enough_ns - once_ns);
    if (answer.infeasible) return std::nullopt;
    extra_ns = std::max(extra_ns, answer.least_extra_ns);
  }
  return once_ns + extra_ns;
}

double settling_percent() { return 100.0 / static_cast<double>(kSettledPart); }

int64_t settling_bound_ns(int64_t time_ns) { return time_ns - time_ns / kSettledPart; }

bool attains(int64_t time_ns, int64_t bound_ns) { return bound_ns >= settling_bound_ns(time_ns); }

int64_t lower_bound_peak_bytes(const Graph& graph) {
  const Dependences dependences = dependences_of(graph);
  const std::vector<int64_t> lasting = lasting_bytes(graph, dependences);
  int64_t peak = 0;
  for (const Value& value : output_values(graph)) peak += graph.storage(value.storage).bytes;
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    int64_t bytes = bytes_while_running(graph, op);
    // At most one place for a result; several results may not take the same, which we overlook.
    for (const StorageId created : op.creates) {
      int64_t most_shared = 0;
      for (const Reuse& reuse : op.reuse) {
        if (reuse.result == created)
          most_shared = std::max(most_shared, shared_bytes(graph, reuse));
      }
      bytes -= most_shared;
    }
    peak = std::max(peak, bytes + lasting[o]);
  }
  return peak + graph.external_bytes();
}

}  // namespace remat
