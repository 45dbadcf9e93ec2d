// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/chain_graphs.h"

#include <string>
#include <utility>

#include "remat/core/graph_builder.h"
#include "remat/core/graph_text.h"
#include "tests/testing/random_graph.h"

namespace remat::testing {

Graph chain_graph(const std::vector<Layer>& layers) {
  const auto a = [](size_t i) { return i == 0 ? std::string("x") : "a" + std::to_string(i); };
  const auto g = [](size_t i) { return "g" + std::to_string(i); };
  const size_t n = layers.size();
  GraphBuilder builder;
  builder.external("x", kChainInputBytes, Role::input);
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

std::vector<Layer> random_layers(std::mt19937_64& generator, size_t count) {
  std::vector<Layer> layers(count);
  for (Layer& layer : layers) {
    layer.forward_ns = draw(generator, 1, 100);
    layer.backward_ns = draw(generator, 1, 100);
    layer.bytes = draw(generator, 1, 30) * 100;
    layer.gradient_bytes = draw(generator, 1, 30) * 100;
    layer.reads_result = chance(generator, 0.3);
  }
  return layers;
}

Graph residual_graph(int blocks) {
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

Graph u_shaped_graph(int depth) {
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

}  // namespace remat::testing
