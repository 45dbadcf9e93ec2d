// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

#include "remat/core/graph.h"

namespace remat::testing {

// What a random graph may hold. Rates are per op, from 0 to 1.
struct RandomGraphOptions {
  int forward_ops = 12;
  int externals = 4;
  double update_rate = 0.15;    // in-place ops, on internal storages and, rarely, on externals
  double random_rate = 0.15;
  double effect_rate = 0.15;
  double once_rate = 0.05;
  double multi_output_rate = 0.2;
  double workspace_rate = 0.3;
  double reuse_rate = 0.3;
  int64_t largest_bytes = 4096;
  bool optimizer_phase = true;
};

// A step with every feature of the format mixed: forward ops on random inputs, a backward op for
// most of them that reads the gradient and some saved values, and in-place optimizer ops. The same
// generator state gives the same graph on every platform.
Graph random_graph(std::mt19937_64& generator, const RandomGraphOptions& options = {});

// Whole number from `low` to `high`, both included. Not std::uniform_int_distribution, whose results
// differ between standard libraries.
int64_t draw(std::mt19937_64& generator, int64_t low, int64_t high);
bool chance(std::mt19937_64& generator, double probability);

}  // namespace remat::testing
