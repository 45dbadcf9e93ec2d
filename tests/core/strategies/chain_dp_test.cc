// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <map>
#include <queue>
#include <random>

#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/strategies/chain/blocks.h"
#include "remat/core/verify.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace {

// One layer of a chain: y = f(x), and its backward, which reads x and, perhaps, y.
struct Layer {
  int64_t forward_ns = 10;
  int64_t backward_ns = 10;
  int64_t bytes = 1000;           // of its result
  int64_t gradient_bytes = 1000;  // of the gradient of its input
  bool reads_result = false;
};

constexpr int64_t kInputBytes = 1000;

// x ─f1─▶ a1 ─f2─▶ … ─fn─▶ an ─loss─▶ gn ─bn─▶ … ─b1─▶ g0
Graph chain(const std::vector<Layer>& layers) {
  const auto a = [](size_t i) { return i == 0 ? std::string("x") : "a" + std::to_string(i); };
  const auto g = [](size_t i) { return "g" + std::to_string(i); };
  const size_t n = layers.size();
  GraphBuilder builder;
  builder.external("x", kInputBytes, Role::input);
  for (size_t i = 1; i <= n; ++i) {
    builder.op({.name = "f" + std::to_string(i),
                .kind = "layer",
                .time_ns = layers[i - 1].forward_ns,
                .reads = {a(i - 1)},
                .creates = {{a(i), layers[i - 1].bytes}}});
  }
  builder.op({.name = "loss",
              .phase = Phase::backward,
              .kind = "loss",
              .time_ns = 1,
              .reads = {a(n)},
              .creates = {{g(n), 1000}}});
  for (size_t i = n; i >= 1; --i) {
    std::vector<std::string> reads{g(i), a(i - 1)};
    if (layers[i - 1].reads_result) reads.push_back(a(i));
    builder.op({.name = "b" + std::to_string(i),
                .phase = Phase::backward,
                .kind = "layer_backward",
                .time_ns = layers[i - 1].backward_ns,
                .reads = std::move(reads),
                .creates = {{g(i - 1), layers[i - 1].gradient_bytes}}});
  }
  builder.output(g(0));
  return std::move(builder).build();
}

Plan chain_dp(const Graph& graph, int64_t budget) {
  Plan made = plan(graph, {.budget_bytes = budget, .strategy = "chain_dp"});
  const auto violation =
      verify(graph, rewrite(graph, made.order), made.feasible ? budget : made.peak_bytes);
  EXPECT_FALSE(violation) << violation->reason;
  EXPECT_EQ(made.feasible, made.peak_bytes <= budget);
  return made;
}

int64_t binomial(int64_t n, int64_t k) {
  int64_t result = 1;
  for (int64_t i = 1; i <= k; ++i) result = result * (n - k + i) / i;
  return n < k ? 0 : result;
}

// Griewank and Walther, Algorithm 799: revolve, 2000. The least number of forward steps for a chain
// of n with s checkpoints: r·n - β(s+1, r-1), where β(s, r) = (s+r)! / (s! r!) and r is the least
// with n <= β(s, r).
int64_t revolve(int64_t n, int64_t s) {
  int64_t r = 0;
  while (binomial(s + r, s) < n) ++r;
  return r * n - (r == 0 ? 0 : binomial(s + r, s + 1));
}

// In a chain of equal layers b_i has x, two gradients and c activations in a budget of c + 3 units;
// x is a checkpoint too. Revolve counts the n - 1 steps of the first pass, which are no re-runs.
TEST(ChainDp, EqualLayersMeetGriewanksNumbers) {
  for (const size_t n : {2u, 3u, 5u, 8u, 13u, 21u, 34u, 60u}) {
    const Graph graph = chain(std::vector<Layer>(n));
    const int64_t keep_all_ns = keep_all_baseline(graph).time_ns;
    for (int64_t c = 1; c <= 8; ++c) {
      const Plan made = chain_dp(graph, (c + 3) * 1000);
      const int64_t steps = static_cast<int64_t>(n);
      ASSERT_TRUE(made.feasible) << n << " layers, " << c;
      EXPECT_EQ(made.time_ns - keep_all_ns, 10 * (revolve(steps, c) - (steps - 1)))
          << n << " layers, " << c << " activations";
    }
  }
}

// The least time of any order at all, by shortest paths over (activations resident, gradient
// reached). The model, written down once more: x, what is resident, and the results of the op at
// work.
class Exhaustive {
 public:
  Exhaustive(const std::vector<Layer>& layers, int64_t budget) : layers_(layers), budget_(budget) {}

  // -1 if nothing fits.
  int64_t least_time_ns() {
    const int n = static_cast<int>(layers_.size());
    reach({0, n + 1}, 0);
    while (!queue_.empty()) {
      const auto [time, state] = queue_.top();
      queue_.pop();
      if (time != best_[state]) continue;
      if (state.gradient == 0) return time;
      for (int i = 1; i <= n; ++i) run_forward(state, i, time);
      run_backward(state, time);
      for (int i = 1; i <= n; ++i) reach({state.resident & ~bit(i), state.gradient}, time);
    }
    return -1;
  }

 private:
  struct State {
    unsigned resident;
    int gradient;  // g_i is there; n + 1: the loss has not run
    auto operator<=>(const State&) const = default;
  };
  using Entry = std::pair<int64_t, State>;

  static unsigned bit(int i) { return i == 0 ? 0u : 1u << i; }
  static bool has(const State& state, int i) { return i == 0 || (state.resident & bit(i)) != 0; }
  const Layer& layer(int i) const { return layers_[static_cast<size_t>(i) - 1]; }

  int64_t gradient_bytes(int i) const {
    const int n = static_cast<int>(layers_.size());
    return i == n + 1 ? 0 : i == n ? 1000 : layer(i + 1).gradient_bytes;
  }
  int64_t bytes(const State& state) const {
    int64_t sum = kInputBytes + gradient_bytes(state.gradient);
    for (int i = 1; i <= static_cast<int>(layers_.size()); ++i) {
      if (has(state, i)) sum += layer(i).bytes;
    }
    return sum;
  }
  void reach(const State& state, int64_t time) {
    const auto [at, fresh] = best_.try_emplace(state, time);
    if (!fresh && at->second <= time) return;
    at->second = time;
    queue_.push({time, state});
  }
  void run_forward(const State& state, int i, int64_t time) {
    if (has(state, i) || !has(state, i - 1)) return;
    if (bytes(state) + layer(i).bytes > budget_) return;
    reach({state.resident | bit(i), state.gradient}, time + layer(i).forward_ns);
  }
  void run_backward(const State& state, int64_t time) {
    const int i = state.gradient;
    const int n = static_cast<int>(layers_.size());
    const int read = i == n + 1 ? n : i - 1;
    if (!has(state, read) || bytes(state) + gradient_bytes(i - 1) > budget_) return;
    if (i <= n && layer(i).reads_result && !has(state, i)) return;
    reach({state.resident, i - 1}, time + (i == n + 1 ? 1 : layer(i).backward_ns));
  }

  const std::vector<Layer>& layers_;
  int64_t budget_;
  std::map<State, int64_t> best_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// rotor is optimal among schedules that keep a checkpoint until the block it leads into is undone.
// Among all, dropping one early and making it again can be better; on six random layers it
// sometimes is.
TEST(ChainDp, UnequalLayersMeetExhaustiveSearch) {
  int64_t cells = 0, optimal = 0;
  for (uint64_t seed = 0; seed < testing::property_graphs(3'000) / 10; ++seed) {
    std::mt19937_64 generator(seed);
    std::vector<Layer> layers(static_cast<size_t>(testing::draw(generator, 2, 6)));
    for (Layer& layer : layers) {
      layer.forward_ns = testing::draw(generator, 1, 100);
      layer.backward_ns = testing::draw(generator, 1, 100);
      layer.bytes = testing::draw(generator, 1, 30) * 100;
      layer.gradient_bytes = testing::draw(generator, 1, 30) * 100;
      layer.reads_result = testing::chance(generator, 0.3);
    }
    const Graph graph = chain(layers);
    const int64_t most = keep_all_baseline(graph).peak_bytes;
    for (int64_t budget = most; budget > most / 3; budget -= most / 12) {
      const int64_t least = Exhaustive(layers, budget).least_time_ns();
      const Plan made = chain_dp(graph, budget);
      if (least < 0) {
        ASSERT_FALSE(made.feasible) << "seed " << seed;
        continue;
      }
      ++cells;
      if (!made.feasible) continue;
      ASSERT_GE(made.time_ns, least) << "seed " << seed << ", budget " << budget;
      EXPECT_LE(made.time_ns, least * 3 / 2) << "seed " << seed << ", budget " << budget;
      optimal += made.time_ns == least;
    }
  }
  EXPECT_GE(optimal, cells * 95 / 100);
}

// Reads of backward: its own input and result, as a framework saves them.
Graph residual(int blocks) {
  std::string text = "remat-graph 1\nexternal x 8 input\n", back;
  std::string before = "x";
  for (int i = 0; i < blocks; ++i) {
    const std::string n = std::to_string(i);
    text +=
        "op conv" + n + " forward kind=conv time_ns=9 reads=" + before + " creates=c" + n + ":8\n";
    text += "op norm" + n + " forward kind=norm time_ns=2 reads=c" + n + " creates=n" + n + ":8\n";
    text += "op relu" + n + " forward kind=relu_ time_ns=1 updates=n" + n + "\n";
    text += "op add" + n + " forward kind=add time_ns=1 reads=n" + n + "," + before + " creates=y" +
            n + ":8\n";
    const std::string from = i + 1 == blocks ? "g" : "g" + std::to_string(i + 1);
    back = "op d_relu" + n + " backward kind=k time_ns=1 reads=" + from + ",n" + n + " creates=r" +
           n + ":8\nop d_norm" + n + " backward kind=k time_ns=4 reads=r" + n + ",c" + n +
           " creates=m" + n + ":8\nop d_conv" + n + " backward kind=k time_ns=18 reads=m" + n +
           "," + before + "," + from + " creates=g" + n + ":8\n" + back;
    before = "y" + n;
  }
  return parse_graph(text + "op loss backward kind=k time_ns=1 reads=" + before + " creates=g:8\n" +
                     back + "output g0\n");
}

int64_t bundle_bytes(const detail::Chain& chain, size_t cut) {
  int64_t bytes = 0;
  for (const detail::BundleSpan& span : chain.spans) {
    const bool inside =
        static_cast<size_t>(span.first) <= cut && cut <= static_cast<size_t>(span.last);
    bytes += inside ? span.bytes : 0;
  }
  return bytes;
}

// conv norm relu_ add, four times: between norm and relu_ there is no cut; between two blocks one
// value crosses; inside, the residual does too, except in the first, where it is external.
TEST(ChainCuts, ResidualBlocks) {
  const Graph graph = residual(4);
  const OrderCost cost(graph);
  const detail::ForwardFacts facts = detail::forward_facts(graph, cost, false);
  EXPECT_EQ(facts.turn, 16);
  const std::vector<detail::ChainCut> cuts = detail::chain_cuts(graph, facts);
  const detail::Chain chain = detail::chain_blocks(graph, cost, facts, cuts);
  std::vector<std::pair<int32_t, int64_t>> found;
  for (size_t i = 0; i < cuts.size(); ++i)
    found.emplace_back(cuts[i].forward, bundle_bytes(chain, i));
  const std::vector<std::pair<int32_t, int64_t>> expected = {
      {0, 0},  {1, 8},   {3, 8},  {4, 8},   {5, 16},  {7, 16}, {8, 8},
      {9, 16}, {11, 16}, {12, 8}, {13, 16}, {15, 16}, {16, 8}, {16, 0}};
  EXPECT_EQ(found, expected);
  // Backward of a block is d_relu, d_norm, d_conv, and blocks are undone in reverse: 16 is the
  // loss.
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i].forward % 4 == 0 && i + 1 < cuts.size()) {
      EXPECT_EQ(cuts[i].backward, 17 + 3 * (16 - cuts[i].forward) / 4) << cuts[i].forward;
    }
  }
}

TEST(ChainCuts, FewerKeepTheCheapOnes) {
  const Graph graph = residual(8);
  const OrderCost cost(graph);
  const detail::ForwardFacts facts = detail::forward_facts(graph, cost, false);
  const auto cuts = detail::fewer_cuts(facts, detail::chain_cuts(graph, facts), 10);
  ASSERT_EQ(cuts.size(), 10u);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) EXPECT_EQ(cuts[i].forward % 4, 0) << i;
}

// Down and up again with a skip at each level: bundles hold what skips, once.
Graph u_shape(int depth) {
  std::string text = "remat-graph 1\nexternal x 8 input\n", back;
  std::string before = "x";
  for (int i = 0; i < depth; ++i) {
    const std::string n = std::to_string(i);
    text += "op down" + n + " forward kind=k time_ns=5 reads=" + before + " creates=d" + n + ":8\n";
    back = "op b_down" + n + " backward kind=k time_ns=9 reads=" + before + ",e" + n +
           " creates=g" + n + ":8\n" + back;
    before = "d" + n;
  }
  std::string gradient = "g";
  std::string up_back;
  for (int i = depth; i-- > 0;) {
    const std::string n = std::to_string(i);
    text += "op up" + n + " forward kind=k time_ns=5 reads=" + before + ",d" + n + " creates=u" +
            n + ":8\n";
    up_back = "op b_up" + n +
              " backward kind=k time_ns=9 reads=" + (i == 0 ? "g" : "h" + std::to_string(i - 1)) +
              "," + before + ",d" + n + " creates=h" + n + ":8,e" + n + ":1\n" + up_back;
    before = "u" + n;
  }
  return parse_graph(text + "op loss backward kind=k time_ns=1 reads=" + before + " creates=g:8\n" +
                     up_back + back + "output g0\n");
}

TEST(ChainDp, LongSkipsTravelInBundles) {
  const Graph graph = u_shape(6);
  const OrderCost cost(graph);
  const detail::ForwardFacts facts = detail::forward_facts(graph, cost, false);
  const auto cuts = detail::chain_cuts(graph, facts);
  const detail::Chain chain = detail::chain_blocks(graph, cost, facts, cuts);
  EXPECT_EQ(bundle_bytes(chain, 3), 3 * 8);  // on the way down every level's result is a skip
  EXPECT_EQ(bundle_bytes(chain, 6), 6 * 8);
  EXPECT_EQ(bundle_bytes(chain, 9), 4 * 8);  // three levels up: three skips and the value at hand
  const int64_t most = keep_all_baseline(graph).peak_bytes;
  const Plan made = chain_dp(graph, most * 85 / 100);
  EXPECT_TRUE(made.feasible);
  EXPECT_GT(made.order.size(), graph.ops.size());
}

// Which tables are looked at depends on the budget, what is in them does not: that makes this
// likely, not certain, so it is tried on a grid.
TEST(ChainDp, MoreMemoryIsNeverSlower) {
  std::vector<Graph> graphs{chain(std::vector<Layer>(40)), residual(20), u_shape(8)};
  for (const size_t n : {20u, 45u, 130u}) {
    std::mt19937_64 generator(n);
    std::vector<Layer> layers(n);
    for (Layer& layer : layers) {
      layer.forward_ns = testing::draw(generator, 1, 100);
      layer.bytes = testing::draw(generator, 1, 3000);
      layer.reads_result = testing::chance(generator, 0.3);
    }
    graphs.push_back(chain(layers));
  }
  for (size_t g = 0; g < graphs.size(); ++g) {
    const int64_t most = keep_all_baseline(graphs[g]).peak_bytes;
    Plan smaller;
    for (int64_t percent = 10; percent <= 100; percent += 9) {
      const Plan made = chain_dp(graphs[g], most * percent / 100);
      if (smaller.feasible) {
        EXPECT_TRUE(made.feasible) << "graph " << g << " at " << percent << " %";
        EXPECT_LE(made.time_ns, smaller.time_ns) << "graph " << g << " at " << percent << " %";
      }
      smaller = made;
    }
  }
}

// 1,000 layers in 25 units: every_k needs 2·sqrt(1000) of them, revolve less than three more
// passes.
TEST(ChainDp, DeepChainsRecomputeLikeLog) {
  const Graph graph = chain(std::vector<Layer>(1000));
  const Plan made = chain_dp(graph, 25 * 1000);
  ASSERT_TRUE(made.feasible);
  EXPECT_LE(made.time_ns - keep_all_baseline(graph).time_ns, 3 * 1000 * 10);
  for (int64_t k = 1; k <= 1000; k += 1 + k / 8) {
    const Plan periodic =
        plan(graph, {.budget_bytes = 25 * 1000, .strategy = "every_k", .every_k = k});
    EXPECT_FALSE(periodic.feasible) << k;
  }
}

// More blocks than one table takes, with every feature of the format: groups and their savings.
TEST(ChainDp, LargeRandomGraphsAreLegal) {
  int64_t recomputing = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::mt19937_64 generator(seed);
    testing::RandomGraphOptions options;
    options.forward_ops = 250;
    options.update_rate = 0.03;
    options.once_rate = 0.01;
    const Graph graph = testing::random_graph(generator, options);
    const int64_t most = keep_all_baseline(graph).peak_bytes;
    for (const int64_t percent : {90, 60, 30}) {
      recomputing += chain_dp(graph, most * percent / 100).order.size() > graph.ops.size();
    }
  }
  EXPECT_GT(recomputing, 6);
}

// An optimizer inside backward changes w1 while block 1 is undone; block 0 reads it too, so that
// re-running block 0 after that would not be legal.
TEST(ChainDp, ParametersThatChangeDuringBackward) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
external w1 8 param
op f0 forward kind=k time_ns=1 reads=x,w1 creates=a0:80
op f1 forward kind=k time_ns=1 reads=a0 creates=a1:8
op f2 forward kind=k time_ns=1 reads=a1,w1 creates=a2:80
op b2 backward kind=k time_ns=1 reads=a2 creates=g2:8
op step backward kind=k time_ns=1 reads=g2 updates=w1
op b1 backward kind=k time_ns=1 reads=g2,a1 creates=g1:8
op b0 backward kind=k time_ns=1 reads=g1,a0 creates=g0:8
output g0
)");
  for (const int64_t budget : {0, 100, 150, 170, 200}) chain_dp(graph, budget);
}

TEST(ChainDp, AnswersWithoutBackward) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
op f0 forward kind=k time_ns=1 reads=x creates=a0:80
op f1 forward kind=k time_ns=1 reads=x creates=a1:80
op f2 forward kind=k time_ns=1 reads=a1 creates=a2:80
op f3 forward kind=k time_ns=1 reads=a0,a2 creates=a3:8
output a3
)");
  // a0, a1 and a2 at f2; running f0 again right before f3 does without a0 there.
  EXPECT_EQ(keep_all_baseline(graph).peak_bytes, 248);
  for (const int64_t budget : {0, 176, 247, 248}) chain_dp(graph, budget);
}

TEST(ChainDp, DecisionsSayHowOftenABlockIsRerun) {
  const Graph graph = chain(std::vector<Layer>(10));
  const Plan made = chain_dp(graph, 5 * 1000);
  ASSERT_FALSE(made.decisions.empty());
  EXPECT_TRUE(made.decisions.front().recomputed);
  EXPECT_NE(made.decisions.front().reason.find("is re-run"), std::string::npos);
}

// The search tries other orders first; here there is none, and it must notice.
TEST(Search, EndsOnAChainInWhichNoOpCanMove) {
  const Graph graph = chain(std::vector<Layer>(100));
  const int64_t budget = (floor(graph).bytes + keep_all_baseline(graph).peak_bytes) / 2;
  const Plan made =
      plan(graph, {.budget_bytes = budget, .strategy = "search", .max_moves = 500});
  EXPECT_TRUE(made.feasible);
}

}  // namespace
}  // namespace remat
