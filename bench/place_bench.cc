// SPDX-License-Identifier: Apache-2.0

// How tight and how fast `place` and `pack` are:
//     place_bench [seeds] [nodes] [time limit]
// Part one packs rectangles that were cut into blocks, so that a packing without waste is known to
// exist. Part two places training steps of transformers, with and without recomputed layers.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "remat/core/packing/packing.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "tests/testing/cut_rectangle.h"

namespace remat {
namespace {

double seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double waste_percent(int64_t height, int64_t least) {
  return least == 0 ? 0 : 100.0 * static_cast<double>(height - least) / static_cast<double>(least);
}

void pack_cut_rectangles(testing::Cut cut, const char* name, uint64_t seeds,
                         const PackingOptions& options) {
  for (const int blocks : {100, 200, 300, 400, 500}) {
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const PackingProblem problem = testing::cut_rectangle(cut, blocks, seed);
      const std::clock_t start = std::clock();
      const Packing packing = pack(problem, options);
      const double seconds = seconds_since(start);
      const std::vector<int64_t> load = problem.load();
      const int64_t least = *std::max_element(load.begin(), load.end());
      std::printf("%-12s %6d %6llu %8.2f%% %10s %10.3f %12lld\n", name, blocks,
                  static_cast<unsigned long long>(seed), waste_percent(packing.height, least),
                  packing.height == packing.lower_bound ? "optimal" : "best found", seconds,
                  static_cast<long long>(packing.search_nodes));
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

}  // namespace
}  // namespace remat

int main(int argc, char** argv) {
  const auto argument = [&](int i, double otherwise) {
    return argc > i ? std::atof(argv[i]) : otherwise;
  };
  const uint64_t seeds = static_cast<uint64_t>(argument(1, 5));
  const int64_t nodes = static_cast<int64_t>(argument(2, 2e6));
  const double seconds = argument(3, 100);

  std::printf("%-12s %6s %6s %9s %10s %10s %12s\n", "cut", "blocks", "seed", "waste", "", "seconds",
              "nodes");
  const remat::PackingOptions packing{.max_search_nodes = nodes, .time_limit_seconds = seconds};
  remat::pack_cut_rectangles(remat::testing::Cut::guillotine, "guillotine", seeds, packing);
  remat::pack_cut_rectangles(remat::testing::Cut::pinwheel, "pinwheel", seeds, packing);

  std::printf("\n%6s %6s %8s %9s %10s %10s\n", "layers", "period", "blocks", "waste", "",
              "seconds");
  remat::place_transformers({});
}
