// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/random_order.h"

#include <utility>

#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "tests/testing/random_graph.h"

namespace remat::testing {
namespace {

bool legal(const Graph& graph, const std::vector<OpId>& order) {
  try {
    rewrite(graph, order);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::vector<OpId> random_order(std::mt19937_64& generator, const Graph& graph, int changes) {
  std::vector<OpId> order = given_order(graph);
  if (order.size() < 2) return order;
  for (int i = 0; i < changes; ++i) {
    std::vector<OpId> changed = order;
    const int64_t last = static_cast<int64_t>(order.size()) - 1;
    const int64_t at = draw(generator, 1, last);
    if (chance(generator, 0.7)) {
      const OpId op = order[static_cast<size_t>(draw(generator, 0, at - 1))];
      changed.insert(changed.begin() + at + 1, op);
    } else {
      std::swap(changed[static_cast<size_t>(at - 1)], changed[static_cast<size_t>(at)]);
    }
    if (legal(graph, changed)) order = std::move(changed);
  }
  return order;
}

}  // namespace remat::testing
