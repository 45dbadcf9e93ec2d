// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/small_case.h"

#include <random>

#include "remat/core/exact/bound.h"
#include "remat/core/plan.h"
#include "tests/testing/random_graph.h"

namespace remat::testing {

SmallCase small_case(uint64_t seed) {
  std::mt19937_64 generator(seed);
  RandomGraphOptions shape;
  shape.forward_ops = static_cast<int>(draw(generator, 2, 6));
  shape.externals = 2;
  shape.optimizer_phase = chance(generator, 0.3);
  shape.largest_bytes = chance(generator, 0.5) ? 4096 : 8;
  if (chance(generator, 0.3)) shape.update_rate = 0.5;
  if (chance(generator, 0.3)) shape.update_rate = 0;
  if (chance(generator, 0.3)) shape.reuse_rate = 0.9;
  SmallCase made{.graph = random_graph(generator, shape), .budgets = {}};
  const int64_t least = lower_bound_peak_bytes(made.graph);
  const int64_t most = keep_all_baseline(made.graph).peak_bytes;
  for (const int64_t share : {0, 25, 50, 75, 95}) {
    made.budgets.push_back(least + (most - least) * share / 100);
  }
  return made;
}

}  // namespace remat::testing
