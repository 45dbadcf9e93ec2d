// SPDX-License-Identifier: Apache-2.0

// How the verbs of core grow with the graph. Every row but the last few is the same GPT at another
// depth, so a verb is linear exactly if its `per_op` stays the same from row to row. Times are CPU
// time: other work on the machine disturbs them through the caches only.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <string>

#include "bench/generator/networks.h"
#include "remat/core/graph_text.h"
#include "remat/core/order/cost.h"
#include "remat/core/place.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"

namespace remat::bench {
namespace {

// Forward and backward of a layer are 56 ops; embedding, loss and the rest are 23.
constexpr int64_t kOpsOfLayer = 56;
constexpr int64_t kOpsBesides = 23;

// A step of about that many ops, made once and then kept.
const Graph& step_of(int64_t ops) {
  static std::map<int64_t, Graph> made;
  const auto [place, fresh] = made.try_emplace(ops);
  if (fresh) {
    const int64_t layers = (ops - kOpsBesides + kOpsOfLayer / 2) / kOpsOfLayer;
    place->second = gpt({.vocabulary = 8192,
                         .width = 512,
                         .heads = 8,
                         .layers = layers,
                         .batch = 8,
                         .tokens = 256});
  }
  return place->second;
}

int64_t half_of_keep_all(const Graph& graph) { return keep_all_baseline(graph).peak_bytes / 2; }

Plan planned(const Graph& graph, const std::string& strategy) {
  return plan(graph, {.budget_bytes = half_of_keep_all(graph), .strategy = strategy});
}

using benchmark::Counter;

// CPU time of an iteration over `parts` equal parts.
Counter time_per(double parts) {
  return Counter(parts, Counter::kIsIterationInvariantRate | Counter::kInvert);
}

void count_ops(benchmark::State& state, size_t ops) {
  state.counters["ops"] = static_cast<double>(ops);
  state.counters["per_op"] = time_per(static_cast<double>(ops));
}

void parse_text(benchmark::State& state) {
  const Graph& graph = step_of(state.range(0));
  const std::string text = print_graph(graph);
  for (auto _ : state) benchmark::DoNotOptimize(parse_graph(text));
  count_ops(state, graph.ops.size());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void print_text(benchmark::State& state) {
  const Graph& graph = step_of(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(print_graph(graph));
  count_ops(state, graph.ops.size());
}

void rewrite_order(benchmark::State& state) {
  const Graph& graph = step_of(state.range(0));
  const std::vector<OpId> order = given_order(graph);
  for (auto _ : state) benchmark::DoNotOptimize(rewrite(graph, order));
  count_ops(state, graph.ops.size());
}

void simulate_timeline(benchmark::State& state) {
  const Graph& graph = step_of(state.range(0));
  const Schedule schedule = rewrite(graph, given_order(graph));
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, schedule));
  count_ops(state, graph.ops.size());
  state.counters["per_1000_ops"] = time_per(static_cast<double>(graph.ops.size()) / 1000);
}

void simulate_peak_only(benchmark::State& state) {
  const Graph& graph = step_of(state.range(0));
  const Schedule schedule = rewrite(graph, given_order(graph));
  for (auto _ : state) benchmark::DoNotOptimize(simulate_peak(graph, schedule));
  count_ops(state, graph.ops.size());
  state.counters["per_1000_ops"] = time_per(static_cast<double>(graph.ops.size()) / 1000);
}

void verify_schedule(benchmark::State& state) {
  const Graph& graph = step_of(state.range(0));
  const Schedule schedule = rewrite(graph, given_order(graph));
  for (auto _ : state) benchmark::DoNotOptimize(verify(graph, schedule, kNoBudget));
  count_ops(state, graph.ops.size());
}

// What a search asks of every order it looks at.
void evaluate_order(benchmark::State& state) {
  const Graph& graph = step_of(state.range(0));
  const int64_t budget_bytes = half_of_keep_all(graph);
  const std::vector<OpId> order = given_order(graph);
  OrderCost cost(graph);
  for (auto _ : state) benchmark::DoNotOptimize(cost.evaluate(order, budget_bytes));
  count_ops(state, order.size());
  state.counters["evaluations"] =
      Counter(static_cast<double>(state.iterations()), Counter::kIsRate);
}

void plan_with_mutwo(benchmark::State& state) {
  const Graph& graph = step_of(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(planned(graph, "mutwo"));
  count_ops(state, graph.ops.size());
}

void place_plan(benchmark::State& state, const std::string& strategy) {
  const Graph& graph = step_of(state.range(0));
  const Plan plan = planned(graph, strategy);
  const Schedule schedule = rewrite(graph, plan.order);
  Placement placement;
  for (auto _ : state) placement = place(graph, schedule);
  count_ops(state, plan.order.size());
  state.counters["waste_%"] =
      100.0 * static_cast<double>(placement.arena_bytes - placement.max_live_bytes) /
      static_cast<double>(placement.max_live_bytes);
}

void sizes(benchmark::internal::Benchmark* bench) {
  for (const int64_t ops : {5'000, 10'000, 20'000, 50'000}) bench->Arg(ops);
  bench->Unit(benchmark::kMillisecond);
}

BENCHMARK(parse_text)->Apply(sizes);
BENCHMARK(print_text)->Apply(sizes);
BENCHMARK(rewrite_order)->Apply(sizes);
BENCHMARK(simulate_timeline)->Apply(sizes);
BENCHMARK(simulate_peak_only)->Apply(sizes);
BENCHMARK(verify_schedule)->Apply(sizes);
BENCHMARK(evaluate_order)->Arg(2'000)->Apply(sizes);
BENCHMARK(plan_with_mutwo)->Arg(2'000)->Arg(5'000)->Unit(benchmark::kSecond)->Iterations(1);
BENCHMARK_CAPTURE(place_plan, keep_all, "keep_all")->Arg(5'000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(place_plan, mutwo_at_half, "mutwo")->Arg(5'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace remat::bench

BENCHMARK_MAIN();
