// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "remat/cli/model_source.h"
#include "remat/report/sweep_report.h"

namespace remat {

struct SweepOptions {
  ModelOptions model;  // its batch, if given, is swept too and has the frontier, else the largest
  std::vector<int64_t> batches;
  std::vector<std::string> budgets;     // of the frontier: bytes, or shares of its plain peak
  std::vector<std::string> strategies;  // of the frontier
  std::string limit;                    // bytes, or a share of the frontier's plain peak; empty: the machine's
  bool measured = false;
  int steps = 3;
  double time_limit_seconds = 1;  // of each plan
  int64_t seed = 1;
};

// 1, 2, 4, ... up to the model's batch size.
std::vector<int64_t> default_batches(const ModelOptions& model);

// Captures and plans the model at every batch size, and runs it if that was asked for. Two small sizes come
// first: what does not fit into the memory of this machine by their numbers is not tried, and the frontier is
// that of the largest size that does. At each size
// the plan gets half of what the plain step needs, or the limit where that is less, and in any case
// its floor; more, up to the limit, where no plan is found for that. Once `interrupted` answers
// true it returns what there is. The largest batch that fits is searched for among all sizes, by
// interpolating between the captured ones (core/fit.h); if points are run, it is run too, where
// there is memory enough to capture it. Throws Error.
SweepReport sweep(const SweepOptions& options, const std::function<bool()>& interrupted);

}  // namespace remat
