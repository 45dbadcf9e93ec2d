// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/random_packing.h"

#include <algorithm>

#include "tests/testing/check_placement.h"
#include "tests/testing/random_graph.h"

namespace remat::testing {

PackingProblem random_packing(std::mt19937_64& generator, int items, int32_t ticks, int64_t size) {
  PackingProblem problem;
  for (int i = 0; i < items; ++i) {
    std::vector<Part> parts;
    const int64_t count = chance(generator, 0.2) ? draw(generator, 2, 3) : 1;
    int32_t first = static_cast<int32_t>(draw(generator, 0, ticks - 1));
    for (int64_t p = 0; p < count && first < ticks; ++p) {
      const int32_t last = static_cast<int32_t>(draw(generator, first, ticks - 1));
      parts.push_back({first, last, draw(generator, 1, size)});
      // Rarely a gap: a member of no bytes in a chain of reuse.
      first = last + 1 + (chance(generator, 0.1) ? 1 : 0);
    }
    problem.add(parts);
  }
  return problem;
}

Effort search_nodes(int64_t count) { return Effort::of_work(160 * count); }

std::string partial_packing_fault(const PackingProblem& problem, const std::vector<int64_t>& offset,
                                  int64_t height) {
  PackingProblem lying;
  Packing packing;
  for (size_t i = 0; i < problem.item_count(); ++i) {
    if (offset[i] < 0) continue;
    lying.add(problem.parts(i));
    packing.offset.push_back(offset[i]);
    for (const Part& part : problem.parts(i)) {
      packing.height = std::max(packing.height, offset[i] + part.size);
    }
  }
  if (packing.height > height) return "higher than allowed";
  return packing_fault(lying, packing);
}

}  // namespace remat::testing
