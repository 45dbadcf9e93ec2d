// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/interpolate.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "bench/generator/networks.h"
#include "bench/generator/optimizers.h"
#include "remat/core/error.h"
#include "remat/core/graph_builder.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace interpolate_test {

using Known = std::vector<SizedGraph>;

// Storages only: those are exact.
std::vector<int64_t> storage_bytes(const Graph& graph) {
  std::vector<int64_t> bytes;
  for (const Storage& storage : graph.storages) bytes.push_back(storage.bytes);
  return bytes;
}

Graph two_ops(int64_t bytes, int64_t workspace, int64_t time_ns) {
  GraphBuilder builder;
  builder.external("x", 4, Role::input);
  builder.op({.name = "f", .kind = "k", .time_ns = time_ns, .workspace_bytes = workspace,
              .reads = {"x"}, .creates = {{"a", bytes}}});
  builder.output("a");
  return std::move(builder).build();
}

std::string fault(const Known& known, int64_t size, Growth growth = Growth::affine) {
  try {
    interpolate(known, size, growth);
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Interpolate, GivesKnownSizesBackByteForByte) {
  const Known batches = {{2, bench::gpt({.layers = 2, .batch = 2, .tokens = 32})},
                         {4, bench::gpt({.layers = 2, .batch = 4, .tokens = 32})},
                         {9, bench::gpt({.layers = 2, .batch = 9, .tokens = 32})}};
  for (const SizedGraph& each : batches) {
    for (const Growth growth : {Growth::affine, Growth::quadratic}) {
      EXPECT_EQ(print_graph(interpolate(batches, each.size, growth)), print_graph(each.graph));
    }
  }
}

// All bytes of a batch are exact, whatever the network, inside and outside of the known sizes.
TEST(Interpolate, BytesAreAffineInTheBatch) {
  using Make = Graph (*)(int64_t batch);
  const std::vector<Make> networks = {
      [](int64_t batch) { return bench::mlp(batch, 64, 4, {.optimizer = bench::sgd_momentum}); },
      [](int64_t batch) { return bench::resnet({.batch = batch}); },
      [](int64_t batch) { return bench::unet(batch, 64); },
      [](int64_t batch) { return bench::convnext_tiny(batch); },
      [](int64_t batch) { return bench::bert_base(batch, 64); },
      [](int64_t batch) { return bench::lstm_language_model(batch, 5); },
      [](int64_t batch) {
        return bench::gpt({.layers = 2, .batch = batch, .tokens = 48}, {.optimizer = bench::adamw});
      }};
  for (const Make make : networks) {
    const Known known = {{3, make(3)}, {5, make(5)}};
    for (const int64_t size : {2, 4, 8, 64}) {  // a batch of one is another program
      const Graph expected = make(size);
      const Graph found = interpolate(known, size, Growth::affine);
      EXPECT_FALSE(program_difference(found, expected));
      EXPECT_EQ(storage_bytes(found), storage_bytes(expected)) << size;
    }
  }
}

TEST(Interpolate, BytesAreQuadraticInTheSequenceAndInTheImage) {
  const auto gpt = [](int64_t tokens) { return bench::gpt({.layers = 2, .batch = 2, .tokens = tokens}); };
  const Known sequences = {{16, gpt(16)}, {64, gpt(64)}, {40, gpt(40)}};
  for (const int64_t size : {8, 33, 50, 512}) {
    EXPECT_EQ(storage_bytes(interpolate(sequences, size, Growth::quadratic)), storage_bytes(gpt(size)));
  }
  const auto unet = [](int64_t image) { return bench::unet(2, image); };
  const Known images = {{64, unet(64)}, {96, unet(96)}, {128, unet(128)}};
  for (const int64_t size : {32, 160, 512}) {
    EXPECT_EQ(storage_bytes(interpolate(images, size, Growth::quadratic)), storage_bytes(unet(size)));
  }
}

// Peaks follow from bytes; workspaces are estimates that level off at a cap in the generator.
TEST(Interpolate, PeaksComeOutAboutRight) {
  const auto make = [](int64_t batch) { return bench::resnet({.batch = batch}); };
  const Known known = {{2, make(2)}, {4, make(4)}};
  const int64_t expected = keep_all_baseline(make(64)).peak_bytes;
  const int64_t found = keep_all_baseline(interpolate(known, 64, Growth::affine)).peak_bytes;
  EXPECT_NEAR(static_cast<double>(found) / static_cast<double>(expected), 1.0, 0.01);
}

TEST(Interpolate, RoundsBytesUpAndTimesToTheNearest) {
  // From 2 to 5 (three apart): 10 + 2 (s - 2) / 3 and so on.
  const Known known = {{2, two_ops(10, 20, 100)}, {5, two_ops(12, 18, 101)}};
  const auto at = [&](int64_t size) { return interpolate(known, size, Growth::affine); };
  EXPECT_EQ(at(3).storages[1].bytes, 11);          // 10.67
  EXPECT_EQ(at(4).storages[1].bytes, 12);          // 11.33
  EXPECT_EQ(at(3).ops[0].workspace_bytes, 20);     // 19.33
  EXPECT_EQ(at(3).ops[0].time_ns, 100);            // 100.33
  EXPECT_EQ(at(4).ops[0].time_ns, 101);            // 100.67
  EXPECT_EQ(at(3).storages[0].bytes, 4);
}

TEST(Interpolate, NothingIsNegative) {
  const Known known = {{2, two_ops(100, 50, 9)}, {3, two_ops(50, 20, 5)}};
  const Graph far = interpolate(known, 10, Growth::affine);
  EXPECT_EQ(far.storages[1].bytes, 0);
  EXPECT_EQ(far.ops[0].workspace_bytes, 0);
  EXPECT_EQ(far.ops[0].time_ns, 0);
}

// Of many known sizes the nearest count: a kink far away does no harm.
TEST(Interpolate, TakesTheNearestSizes) {
  const Known known = {{1, two_ops(1000, 0, 1)}, {8, two_ops(80, 0, 8)}, {16, two_ops(160, 0, 16)}};
  EXPECT_EQ(interpolate(known, 12, Growth::affine).storages[1].bytes, 120);
  EXPECT_EQ(interpolate(known, 100, Growth::affine).storages[1].bytes, 1000);
  // 12 is as far from 8 as from 16; with 4 known too, 8 and 16 are the nearest two all the same.
  const Known more = {{4, two_ops(0, 0, 0)}, {8, two_ops(80, 0, 8)}, {16, two_ops(160, 0, 16)}};
  EXPECT_EQ(interpolate(more, 12, Growth::affine).storages[1].bytes, 120);
}

// Exact at the far ends of what is allowed: amounts of 53 bits, sizes of 22.
TEST(Interpolate, IsExactForLargeNumbers) {
  const int64_t slope = (int64_t{1} << 31) - 1;
  const auto at = [&](int64_t size) { return SizedGraph{size, two_ops(slope * size, 1, 2)}; };
  const Known known = {at(1), at(3), at(kLargestProgramSize - 1)};
  for (const Growth growth : {Growth::affine, Growth::quadratic}) {
    EXPECT_EQ(interpolate(known, kLargestProgramSize, growth).storages[1].bytes,
              slope * kLargestProgramSize);
    EXPECT_EQ(interpolate(known, 2, growth).storages[1].bytes, 2 * slope);
  }
}

// A graph whose numbers are random polynomials is found again at every size.
TEST(Interpolate, RandomGraphsWithPolynomialNumbers) {
  std::mt19937_64 generator(7);
  for (uint64_t i = 0; i < testing::property_graphs(200); ++i) {
    const Graph base = testing::random_graph(generator);
    std::vector<int64_t> slopes;
    for (size_t j = 0; j < base.storages.size(); ++j) slopes.push_back(testing::draw(generator, 0, 99));
    const auto make = [&](int64_t size, bool quadratic) {
      Graph graph = base;
      for (size_t j = 0; j < slopes.size(); ++j) {
        graph.storages[j].bytes += slopes[j] * (quadratic ? size * size - size : size);
      }
      for (Op& op : graph.ops) op.time_ns += 3 * size;
      return graph;
    };
    const int64_t a = testing::draw(generator, 1, 9), b = a + testing::draw(generator, 1, 9),
                  c = b + testing::draw(generator, 1, 9), d = testing::draw(generator, 1, 60);
    const Known two = {{b, make(b, false)}, {a, make(a, false)}};
    EXPECT_EQ(interpolate(two, d, Growth::affine), make(d, false));
    const Known three = {{c, make(c, true)}, {a, make(a, true)}, {b, make(b, true)}};
    EXPECT_EQ(interpolate(three, d, Growth::quadratic), make(d, true));
  }
}

TEST(Interpolate, RefusesGraphsOfOtherPrograms) {
  const auto gpt = [](int64_t layers) { return bench::gpt({.layers = layers, .batch = 2, .tokens = 16}); };
  const std::string message = fault({{2, gpt(2)}, {4, gpt(3)}}, 3);
  EXPECT_NE(message.find("[interpolate] the graphs of sizes 2 and 4 are not of one program: op "),
            std::string::npos)
      << message;
  // An unrolled sequence is another program at every length.
  EXPECT_NE(fault({{2, bench::lstm_language_model(2, 4)}, {4, bench::lstm_language_model(2, 6)}}, 3)
                .find("not of one program"),
            std::string::npos);
}

// Every part of the structure is looked at.
TEST(Interpolate, NamesTheDifference) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 4 input
external w 4 param
external stat 1 buffer
op f forward kind=k time_ns=1 reads=x,w creates=a:8 effects=stat
op g forward kind=k time_ns=1 reads=a creates=b:8 reuse=b<a
op h backward kind=k time_ns=1 reads=b updates=w
output b
)");
  EXPECT_EQ(program_difference(graph, graph), std::nullopt);
  const auto changed = [&](auto change) {
    Graph other = graph;
    change(other);
    return program_difference(graph, other).value_or("none");
  };
  EXPECT_EQ(changed([](Graph& g) { g.ops[1].kind = "l"; }),
            "op 1 is g (k) in one and g (l) in the other");
  EXPECT_EQ(changed([](Graph& g) { g.ops[1].phase = Phase::backward; }), "op 1, g (k), has other phases");
  EXPECT_EQ(changed([](Graph& g) { g.ops[1].scope = "s"; }), "op 1, g (k), has other layers");
  EXPECT_EQ(changed([](Graph& g) { g.ops[0].reads.pop_back(); }), "op 0, f (k), has other inputs");
  EXPECT_EQ(changed([](Graph& g) { g.ops[2].updates.clear(); }), "op 2, h (k), has other updates");
  EXPECT_EQ(changed([](Graph& g) { g.ops[0].creates.clear(); }), "op 0, f (k), has other results");
  EXPECT_EQ(changed([](Graph& g) { g.ops[0].effects.clear(); }), "op 0, f (k), has other effects");
  EXPECT_EQ(changed([](Graph& g) { g.ops[1].reuse.clear(); }),
            "op 1, g (k), has other results that may take the place of an input");
  EXPECT_EQ(changed([](Graph& g) { g.ops[1].random = true; }),
            "op 1, g (k), has other marks (random, once)");
  EXPECT_EQ(changed([](Graph& g) { g.ops.pop_back(); }), "one has 3 ops and the other 2");
  EXPECT_EQ(changed([](Graph& g) { g.external_count = 2; }),
            "one has 5 storages and the other 5, of which externals 3 and 2");
  EXPECT_EQ(changed([](Graph& g) { g.storages[0].name = "y"; }),
            "a storage is x in one and y in the other");
  EXPECT_EQ(changed([](Graph& g) { g.storages[0].role = Role::param; }),
            "x is input in one and param in the other");
  EXPECT_EQ(changed([](Graph& g) { g.storages[3].output = true; }),
            "a is made, changed or kept by other ops");
  EXPECT_EQ(changed([](Graph& g) { g.outputs.clear(); }), "they have other outputs");
  EXPECT_EQ(changed([](Graph& g) {
              g.ops[0].time_ns = g.ops[1].workspace_bytes = 7;
              g.storages[3].bytes = 9;
            }),
            "none");
}

TEST(Interpolate, RefusesWhatItCannotKnow) {
  const Graph graph = two_ops(1, 1, 1);
  EXPECT_EQ(fault({{2, graph}}, 2), "[interpolate] 1 sizes are known; expected at least 2");
  EXPECT_EQ(fault({{2, graph}, {3, graph}}, 2, Growth::quadratic),
            "[interpolate] 2 sizes are known; expected at least 3");
  EXPECT_EQ(fault({{2, graph}, {2, graph}}, 2), "[interpolate] size 2 is given twice; expected once");
  EXPECT_EQ(fault({{0, graph}, {2, graph}}, 2), "[interpolate] a graph of size 0; expected 1 to 4194304");
  EXPECT_EQ(fault({{1, graph}, {2, graph}}, 0), "[interpolate] size 0; expected 1 to 4194304");
  EXPECT_EQ(fault({{1, graph}, {2, graph}}, kLargestProgramSize + 1),
            "[interpolate] size 4194305; expected 1 to 4194304");
  const Known steep = {{1, two_ops(1, 1, 1)}, {2, two_ops(int64_t{1} << 50, 1, 1)}};
  EXPECT_NE(fault(steep, 1000).find("a storage would exceed 9007199254740991"), std::string::npos);
  const Known sums = {{1, two_ops(1, 1, 1)}, {2, two_ops(int64_t{1} << 51, int64_t{1} << 51, 1)}};
  EXPECT_NE(fault(sums, 4).find("the sum of all bytes would exceed"), std::string::npos);
}

}  // namespace interpolate_test
}  // namespace remat
