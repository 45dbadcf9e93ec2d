// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "remat/core/graph.h"

namespace remat::testing {

// One layer of a chain: y = f(x), and its backward, which reads x and, perhaps, y.
struct Layer {
  int64_t forward_ns = 10;
  int64_t backward_ns = 10;
  int64_t bytes = 1000;           // of its result
  int64_t gradient_bytes = 1000;  // of the gradient of its input
  bool reads_result = false;
};
inline constexpr int64_t kChainInputBytes = 1000;

// x ─f1─▶ a1 ─f2─▶ … ─fn─▶ an ─loss─▶ gn ─bn─▶ … ─b1─▶ g0
Graph chain_graph(const std::vector<Layer>& layers);

// Layers with times from 1 to 100 ns and up to 3000 bytes, in steps of 100.
std::vector<Layer> random_layers(std::mt19937_64& generator, size_t count);

// conv norm relu_ add, `blocks` times, with eight bytes for every value. Backward reads what a framework
// saves: its own input and result.
Graph residual_graph(int blocks);

// Down and up again with a skip at each level.
Graph u_shaped_graph(int depth);

}  // namespace remat::testing
