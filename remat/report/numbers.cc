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

std::string layer_of(const std::string& scope, int depth) {
  if (scope.empty()) return std::string(kNoLayer);
  size_t end = 0;
  for (int part = 0; depth > 0 && part < depth && end != std::string::npos; ++part) {
    end = scope.find('.', end + (part > 0));
  }
  return depth > 0 ? scope.substr(0, end) : scope;
}

}  // namespace remat
