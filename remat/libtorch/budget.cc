// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/budget.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "remat/core/error.h"
#include "remat/core/plan.h"
#include "remat/libtorch/device.h"

namespace remat {
namespace {

// For what is not counted: kernels compiled at run time, thread stacks, the rest of the program.
constexpr double kMargin = 0.1;
constexpr int64_t kAlignment = 64;

}  // namespace

std::function<int64_t(const Graph&)> share_of_plain_peak(double share) {
  if (!(share > 0) || !std::isfinite(share)) {
    throw Error(detail::concat("[step] the budget is a share of ", share,
                               " of the plain step's peak; expected more than 0"));
  }
  const auto largest = std::make_shared<int64_t>(0);
  return [share, largest](const Graph& graph) {
    *largest = std::max(*largest, keep_all_baseline(graph).peak_bytes);
    const auto bytes = static_cast<int64_t>(share * static_cast<double>(*largest));
    // Addresses are aligned: all of the plain step's bytes are enough to keep everything.
    const auto lost = static_cast<int64_t>(graph.storages.size()) * kAlignment;
    return share >= 1 ? bytes + lost : bytes;
  };
}

std::function<int64_t(const Graph&)> available_memory() {
  const auto found = std::make_shared<std::optional<int64_t>>();
  return [found](const Graph& graph) {
    if (!*found) {
      detail::cpu_device().trim();  // what the plain run has freed is left, too
      const auto left = static_cast<double>(detail::cpu_device().available_bytes());
      *found = graph.external_bytes() + static_cast<int64_t>((1 - kMargin) * left);
    }
    return **found;
  };
}

}  // namespace remat
