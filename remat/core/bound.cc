// SPDX-License-Identifier: Apache-2.0

// The bound on time, in stages: a chain of cuts through the ops where keeping everything does not
// fit; the window model for more and more of them.

#include "remat/core/bound.h"

#include <algorithm>
#include <vector>

#include "remat/core/dependences.h"
#include "remat/core/linear_model.h"
#include "remat/core/operands.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/window_model.h"

namespace remat {
namespace {

// Walking from every op is quadratic; beyond this many ops it is not worth the wait.
constexpr size_t kMostOpsToWalk = 10'000;

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

// `count` ops of the chain: in each of `count` even stretches the one with the largest excess.
std::vector<OpId> spread(const std::vector<OpId>& chain, const std::vector<int64_t>& excess_bytes,
                         size_t count) {
  std::vector<OpId> cuts;
  for (size_t k = 0; k < count; ++k) {
    const size_t begin = k * chain.size() / count, end = (k + 1) * chain.size() / count;
    OpId best = chain[begin];
    for (size_t c = begin; c < end; ++c) {
      if (excess_bytes[index(chain[c])] > excess_bytes[index(best)]) best = chain[c];
    }
    cuts.push_back(best);
  }
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

// A value that cannot be made twice, and who needs it.
struct Lasting {
  Value value;
  OpId maker{};
  std::vector<OpId> users;
  bool output = false;
};

std::vector<Lasting> lasting_values(const Graph& graph) {
  const ValueNumbers values(graph);
  std::vector<std::vector<OpId>> users(values.size());
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    for (const Value& value : internal_inputs(graph, graph.ops[o])) {
      users[values.of(value)].push_back(static_cast<OpId>(o));
    }
  }
  std::vector<Lasting> lasting;
  for (size_t v = 0; v < values.size(); ++v) {
    const Storage& storage = graph.storage(values[v].storage);
    const OpId made_by = maker(graph, values[v]);
    if (storage.bytes == 0 || graph.rerunnable(made_by)) continue;
    lasting.push_back(
        {values[v], made_by, std::move(users[v]),
         storage.output && values[v].version == graph.last_version(values[v].storage)});
  }
  return lasting;
}

// Bytes of lasting values that are there at the op's first run, its own inputs apart.
int64_t lasting_bytes(const Graph& graph, const Dependences& dependences,
                      const std::vector<Lasting>& lasting, OpId op) {
  const std::vector<bool> precedes = reached(dependences.before, op);
  const std::vector<bool> descends = reached(dependences.after, op);
  const std::vector<Value> inputs = internal_inputs(graph, graph.op(op));
  int64_t bytes = 0;
  for (const Lasting& one : lasting) {
    if (!precedes[index(one.maker)]) continue;
    if (std::find(inputs.begin(), inputs.end(), one.value) != inputs.end()) continue;
    const bool needed = one.output || std::any_of(one.users.begin(), one.users.end(),
                                                  [&](OpId user) { return descends[index(user)]; });
    if (needed) bytes += graph.storage(one.value.storage).bytes;
  }
  return bytes;
}

}  // namespace

std::optional<int64_t> lower_bound_time_ns(const Graph& graph, int64_t budget_bytes, Effort& effort,
                                           const BoundOptions& options) {
  if (graph.ops.empty()) return 0;
  if (lower_bound_peak_bytes(graph) > budget_bytes) return std::nullopt;
  int64_t once_ns = 0;
  for (const Op& op : graph.ops) once_ns += op.time_ns;
  const std::vector<int64_t> excess = excess_of(graph, budget_bytes);
  const Dependences dependences = dependences_of(graph);
  const std::vector<OpId> chain = chain_of_cuts(graph, dependences, excess);
  if (chain.empty() || !has_solver()) return once_ns;

  int64_t extra_ns = 0;
  const size_t most = std::min(chain.size(), static_cast<size_t>(std::max(0, options.max_cuts)));
  for (size_t count = 1;
       count <= most && !effort.exhausted() && !attains(options.enough_ns, once_ns + extra_ns);
       count = count == most ? most + 1 : std::min(most, count * 2)) {
    const WindowModel model(graph, dependences, spread(chain, excess, count), budget_bytes);
    const double share = count == most ? 1.0 : 0.5;
    Effort part = effort.part(effort.left_seconds() * share);
    const int64_t before_ns = part.left_ns();
    const WindowModel::Answer answer = model.solve(part, options.enough_ns - once_ns);
    effort.spend(before_ns - part.left_ns());
    if (answer.infeasible) return std::nullopt;
    extra_ns = std::max(extra_ns, answer.least_extra_ns);
  }
  return once_ns + extra_ns;
}

int64_t lower_bound_peak_bytes(const Graph& graph) {
  const Dependences dependences = dependences_of(graph);
  std::vector<Lasting> lasting = lasting_values(graph);
  if (graph.ops.size() > kMostOpsToWalk) lasting.clear();
  int64_t peak = 0;
  for (const StorageId id : graph.outputs) {
    if (!graph.storage(id).external()) peak += graph.storage(id).bytes;
  }
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
    if (!lasting.empty()) {
      bytes += lasting_bytes(graph, dependences, lasting, static_cast<OpId>(o));
    }
    peak = std::max(peak, bytes);
  }
  return peak + graph.external_bytes();
}

}  // namespace remat
