// SPDX-License-Identifier: Apache-2.0
#include "remat/report/numbers.h"

#include <fmt/format.h>

namespace remat {

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string share(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} %", percent(part, whole));
}

std::string op_label(const Graph& graph, OpId id) {
  if (graph.ops.empty()) return "no op";
  const Op& op = graph.op(id);
  return fmt::format("{} {}", op.scope.empty() ? op.name : op.scope + "/" + op.name,
                     name(op.phase));
}

}  // namespace remat
