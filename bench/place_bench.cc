// SPDX-License-Identifier: Apache-2.0

// How tight and how fast `place` and `pack` are:
//     place_bench [seeds] [seconds of work]
//     place_bench stages GRAPH...
// Part one packs rectangles that were cut into blocks, so that a packing without waste is known to
// exist. Part two places training steps of transformers, with and without recomputed layers.
// `stages` shows what each stage of the packer is worth: what is lost without it, on the rectangles
// and on plans for the graphs in these files.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/cli/files.h"
#include "remat/core/effort.h"
#include "remat/core/graph_builder.h"
#include "remat/core/graph_text.h"
#include "remat/core/packing/packing.h"
#include "remat/core/place.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "tests/testing/cut_rectangle.h"

namespace remat {

constexpr double kRectangleSeconds = 0.8;  // of work, for each rectangle

namespace {

double seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double waste_percent(int64_t height, int64_t least) {
  return least == 0 ? 0 : 100.0 * static_cast<double>(height - least) / static_cast<double>(least);
}

void pack_cut_rectangles(testing::Cut cut, const char* name, uint64_t seeds, int64_t work) {
  for (const int blocks : {100, 200, 300, 400, 500}) {
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const PackingProblem problem = testing::cut_rectangle(cut, blocks, seed);
      const std::clock_t start = std::clock();
      Effort effort = Effort::of_work(work);
      const Packing packing = pack(problem, effort);
      const double seconds = seconds_since(start);
      std::printf("%-12s %6d %6llu %8.2f%% %10s %10.3f %14lld\n", name, blocks,
                  static_cast<unsigned long long>(seed),
                  waste_percent(packing.height, problem.largest_load()),
                  packing.height == packing.lower_bound ? "optimal" : "best found", seconds,
                  static_cast<long long>(effort.spent()));
      std::fflush(stdout);
    }
  }
}

// One training step of a transformer: `layers` blocks of attention and MLP with a gradient for each
// weight. Sizes are those of a small model, in bytes.
class Transformer {
 public:
  explicit Transformer(int layers) : layers_(layers) {
    builder_.external("x", kTokens * kWidth * 4, Role::input);
    std::string x = "x";
    for (int layer = 0; layer < layers; ++layer) x = forward(layer, x);
    op("loss", Phase::forward, {x}, "loss", 4, 0);
    builder_.output("loss");
    op("d_loss", Phase::backward, {"loss"}, name("dx", layers), kTokens * kWidth * 4, 0);
    for (int layer = layers; layer-- > 0;) backward(layer);
    graph_ = std::move(builder_).build();
  }

  const Graph& graph() const { return graph_; }

  // Every `period`-th layer keeps its activations; the others run forward again before they run
  // backward. 1: nothing is recomputed.
  std::vector<OpId> order(int period) const {
    std::vector<OpId> order;
    for (int32_t i = 0; i < forward_ops_ + 2; ++i) order.push_back(static_cast<OpId>(i));
    for (int layer = layers_; layer-- > 0;) {
      const int back = layers_ - 1 - layer;
      if (layer % period != 0) {
        for (int32_t i = 0; i < kForwardOps; ++i) {
          order.push_back(static_cast<OpId>(layer * kForwardOps + i));
        }
      }
      for (int32_t i = 0; i < kBackwardOps; ++i) {
        order.push_back(static_cast<OpId>(forward_ops_ + 2 + back * kBackwardOps + i));
      }
    }
    return order;
  }

 private:
  static constexpr int64_t kTokens = 512, kWidth = 256, kHeads = 4;
  static constexpr int32_t kForwardOps = 10, kBackwardOps = 14;

  static std::string name(const char* what, int layer) { return what + std::to_string(layer); }

  void op(const std::string& op_name, Phase phase, std::vector<std::string> reads,
          const std::string& result, int64_t bytes, int64_t workspace_bytes,
          const std::string& over = "") {
    OpSpec spec{.name = op_name,
                .phase = phase,
                .kind = "aten::op",
                .time_ns = 1000,
                .workspace_bytes = workspace_bytes,
                .reads = std::move(reads),
                .creates = {{result, bytes}}};
    if (!over.empty()) spec.reuse.push_back({result, over});
    builder_.op(std::move(spec));
    if (phase == Phase::forward && result != "loss") ++forward_ops_;
  }

  std::string forward(int n, const std::string& x) {
    const int64_t wide = kTokens * kWidth * 4, scores = kHeads * kTokens * kTokens * 4;
    const auto run = [&](const char* what, std::vector<std::string> reads, int64_t bytes,
                         int64_t workspace_bytes, const std::string& over = "") {
      const std::string result = name(what, n);
      op("f_" + result, Phase::forward, std::move(reads), result, bytes, workspace_bytes, over);
      return result;
    };
    const std::string ln1 = run("ln1_", {x}, wide, 0);
    const std::string qkv = run("qkv_", {ln1}, 3 * wide, 65536);
    const std::string score = run("score_", {qkv}, scores, 0);
    const std::string soft = run("soft_", {score}, scores, 0, score);
    const std::string context = run("context_", {soft, qkv}, wide, 32768);
    const std::string mid = run("mid_", {context, x}, wide, 65536);
    const std::string ln2 = run("ln2_", {mid}, wide, 0);
    const std::string up = run("up_", {ln2}, 4 * wide, 65536);
    const std::string gelu = run("gelu_", {up}, 4 * wide, 0, up);
    return run("y_", {gelu, mid}, wide, 65536);
  }

  void backward(int n) {
    const int64_t wide = kTokens * kWidth * 4, scores = kHeads * kTokens * kTokens * 4;
    const int64_t weight = kWidth * kWidth * 4;
    const std::string x = n == 0 ? "x" : name("y_", n - 1);
    const std::string dy = name("dx", n + 1);
    const auto run = [&](const char* what, std::vector<std::string> reads, int64_t bytes,
                         int64_t workspace_bytes, const std::string& over = "") {
      const std::string result = name(what, n);
      op("b_" + result, Phase::backward, std::move(reads), result, bytes, workspace_bytes, over);
      return result;
    };
    const auto gradient = [&](const char* what, std::vector<std::string> reads, int64_t bytes) {
      builder_.output(run(what, std::move(reads), bytes, 16384));
    };
    const std::string dgelu = run("dgelu_", {dy}, 4 * wide, 65536);
    gradient("dw_down_", {dy, name("gelu_", n)}, 4 * weight);
    const std::string dup = run("dup_", {dgelu, name("up_", n)}, 4 * wide, 0, dgelu);
    gradient("dw_up_", {dup, name("ln2_", n)}, 4 * weight);
    const std::string dln2 = run("dln2_", {dup}, wide, 65536);
    const std::string dmid = run("dmid_", {dln2, dy, name("mid_", n)}, wide, 0, dln2);
    gradient("dw_out_", {dmid, name("context_", n)}, weight);
    const std::string dcontext = run("dcontext_", {dmid}, wide, 65536);
    const std::string dsoft = run("dsoft_", {dcontext, name("qkv_", n)}, scores, 0);
    const std::string dscore = run("dscore_", {dsoft, name("soft_", n)}, scores, 0, dsoft);
    const std::string dqkv =
        run("dqkv_", {dscore, dcontext, name("qkv_", n), name("soft_", n)}, 3 * wide, 131072);
    gradient("dw_qkv_", {dqkv, name("ln1_", n)}, 3 * weight);
    const std::string dln1 = run("dln1_", {dqkv}, wide, 65536);
    op(name("b_dx", n), Phase::backward, {dln1, dmid, x}, name("dx", n), wide, 0, dln1);
  }

  int layers_;
  int32_t forward_ops_ = 0;
  GraphBuilder builder_;
  Graph graph_;
};

void place_transformers(const PlaceOptions& options) {
  for (const int layers : {2, 12, 48, 200, 1000, 2500}) {
    const Transformer model(layers);
    for (const int period : {1, 2, 4, layers}) {
      const Schedule schedule = rewrite(model.graph(), model.order(period));
      const std::clock_t start = std::clock();
      const Placement placement = place(model.graph(), schedule, options);
      const double seconds = seconds_since(start);
      const auto placed = [](int64_t offset) { return offset != kNoAddress; };
      const int64_t blocks = std::ranges::count_if(placement.instance_offset, placed) +
                             std::ranges::count_if(placement.workspace_offset, placed);
      std::printf("%6d %6d %8lld %8.3f%% %10s %10.3f\n", layers, period,
                  static_cast<long long>(blocks),
                  waste_percent(placement.arena_bytes, placement.max_live_bytes),
                  placement.optimal ? "optimal" : "best found", seconds);
      std::fflush(stdout);
    }
  }
}

struct Total {
  int problems = 0;
  int tight = 0;
  double waste_percents = 0;
  double worst_percent = 0;
  double seconds = 0;

  void add(int64_t height, int64_t least, double cpu_seconds) {
    const double waste = waste_percent(height, least);
    ++problems;
    tight += waste == 0 ? 1 : 0;
    waste_percents += waste;
    worst_percent = std::max(worst_percent, waste);
    seconds += cpu_seconds;
  }
  void print() const {
    std::printf(" %4d of %-4d %8.2f%% %8.2f%% %8.1f |", tight, problems,
                waste_percents / std::max(1, problems), worst_percent, seconds);
  }
};

struct Stage {
  const char* name;
  bool PackingStages::*on;
};
constexpr Stage kStages[] = {
    {"both_ends", &PackingStages::both_ends},
    {"glue", &PackingStages::glue},
    {"raise", &PackingStages::raise},
    {"search", &PackingStages::search},
    {"lower", &PackingStages::lower}};

struct Planned {
  const Graph* graph;
  Schedule schedule;
};

// The plans of `auto` for which the greedy orders are not enough.
std::vector<Planned> wasteful_plans(const std::vector<Graph>& graphs) {
  std::vector<Planned> plans;
  for (const Graph& graph : graphs) {
    const int64_t keep_all = keep_all_baseline(graph).peak_bytes;
    for (const int percent : {60, 40, 30, 20}) {
      const Plan made = plan(graph, {.budget_bytes = keep_all / 100 * percent});
      if (!made.feasible) continue;
      Schedule schedule = rewrite(graph, made.order);
      const Placement greedy = place(graph, schedule, {.time_limit_seconds = 0});
      if (greedy.arena_bytes > greedy.max_live_bytes)
        plans.push_back({&graph, std::move(schedule)});
    }
  }
  return plans;
}

void compare_stages(const std::vector<std::string>& files) {
  std::vector<Graph> graphs;
  for (const std::string& file : files) graphs.push_back(parse_graph(read_file(file)));
  const std::vector<Planned> plans = wasteful_plans(graphs);
  std::vector<std::pair<const char*, PackingStages>> rows = {{"nothing", {}}};
  for (const Stage& stage : kStages) {
    rows.push_back({stage.name, {}});
    rows.back().second.*stage.on = false;
  }
  std::printf("%-10s | rectangles: tight, mean and worst waste, seconds | plans: the same\n",
              "without");
  for (const auto& [name, stages] : rows) {
    Total rectangles, placed;
    for (const testing::Cut cut : {testing::Cut::guillotine, testing::Cut::pinwheel}) {
      for (const int blocks : {100, 200, 300, 400, 500}) {
        for (uint64_t seed = 0; seed < 5; ++seed) {
          const PackingProblem problem = testing::cut_rectangle(cut, blocks, seed);
          const std::clock_t start = std::clock();
          Effort effort = Effort::of_work(Effort::work_of_seconds(kRectangleSeconds));
          const Packing packing = pack(problem, effort, {.stages = stages});
          rectangles.add(packing.height, problem.largest_load(), seconds_since(start));
        }
      }
    }
    for (const auto& [graph, schedule] : plans) {
      const std::clock_t start = std::clock();
      const Placement placement = place(*graph, schedule, {.stages = stages});
      placed.add(placement.arena_bytes, placement.max_live_bytes, seconds_since(start));
    }
    std::printf("%-10s |", name);
    rectangles.print();
    placed.print();
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace remat

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "stages") {
    remat::compare_stages({argv + 2, argv + argc});
    return 0;
  }
  const auto argument = [&](int i, double otherwise) {
    return argc > i ? std::atof(argv[i]) : otherwise;
  };
  const uint64_t seeds = static_cast<uint64_t>(argument(1, 5));
  const int64_t work = remat::Effort::work_of_seconds(argument(2, remat::kRectangleSeconds));

  std::printf("%-12s %6s %6s %9s %10s %10s %14s\n", "cut", "blocks", "seed", "waste", "", "seconds",
              "work");
  remat::pack_cut_rectangles(remat::testing::Cut::guillotine, "guillotine", seeds, work);
  remat::pack_cut_rectangles(remat::testing::Cut::pinwheel, "pinwheel", seeds, work);

  std::printf("\n%6s %6s %8s %9s %10s %10s\n", "layers", "period", "blocks", "waste", "",
              "seconds");
  remat::place_transformers({});
}
