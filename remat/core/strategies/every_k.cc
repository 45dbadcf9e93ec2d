// SPDX-License-Identifier: Apache-2.0

// Chen, Xu, Zhang, Guestrin: Training Deep Nets with Sublinear Memory Cost, 2016.
//
// The forward ops are cut into segments of k layers. A layer is a run of ops with the same scope;
// where the graph has no scopes every op that creates something is one. What crosses from one
// segment into a later one is kept; the rest of a segment is forgotten after forward and made again,
// as a whole, when backward first needs something of it:
//
//     forward    f1 f2 f3 │ f4 f5 f6 │ f7 f8 f9        k = 3: a3 and a6 are kept
//     backward            f7' f8' f9' b9 b8 b7   f4' f5' f6' b6 b5 b4   ...
//
// With n equal layers, n/k values are kept and k are resident in the segment at work: k = √n makes
// both √n. The budget is not looked at: k is the knob.

#include <cmath>

#include "remat/core/analysis/recompute.h"
#include "remat/core/error.h"
#include "remat/core/strategies/strategies.h"

namespace remat {
namespace {

// The layer of every op up to the turning point, counted from 0.
std::vector<int64_t> layers_of(const Graph& graph, OpId turning_point) {
  std::vector<int64_t> layer(index(turning_point));
  bool scoped = false;
  for (size_t i = 0; i < layer.size(); ++i) scoped = scoped || !graph.ops[i].scope.empty();
  int64_t current = 0;
  for (size_t i = 1; i < layer.size(); ++i) {
    const bool starts = scoped ? graph.ops[i].scope != graph.ops[i - 1].scope
                               : !graph.ops[i].creates.empty();
    if (starts) ++current;
    layer[i] = current;
  }
  return layer;
}

}  // namespace

Plan plan_every_k(const Graph& graph, const PlanOptions& options) {
  if (options.every_k < 0) {
    throw Error(detail::concat("[plan] every_k is ", options.every_k, "; expected zero or more"));
  }
  const Uses uses = uses_of(graph);
  const OpId turn = turning_point(graph);
  const std::vector<int64_t> layer = layers_of(graph, turn);
  const int64_t layers = layer.empty() ? 0 : layer.back() + 1;
  const int64_t k = options.every_k > 0
                        ? options.every_k
                        : std::max<int64_t>(1, std::llround(std::sqrt(static_cast<double>(layers))));
  std::vector<Drop> drops;
  std::vector<Decision> decisions;
  for (const Candidate& candidate : candidates_of(graph, uses, turn)) {
    const OpId creator = *graph.storage(candidate.storage).creator;
    const int64_t from = layer[index(creator)] / k;
    const int64_t to = layer[index(candidate.last_before)] / k;
    const bool crosses = from != to;
    if (!crosses) drops.push_back({candidate.storage, candidate.last_before});
    decisions.push_back(
        {candidate.storage, !crosses,
         crosses ? detail::concat("it leads from segment ", from, " to segment ", to, " (k = ", k,
                                  " of ", layers, " layers)")
                 : detail::concat("it stays inside segment ", from, " (k = ", k, " of ", layers,
                                  " layers)")});
  }
  Recomputation made = order_with_drops(graph, uses, drops, {.share = true});
  Plan plan = make_plan(graph, "every_k", std::move(made.order), options.budget_bytes);
  plan.decisions = std::move(decisions);
  return plan;
}

}  // namespace remat
