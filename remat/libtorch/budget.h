// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "remat/core/graph.h"

namespace remat {

// Budgets that are known only once a step has been recorded, for StepOptions::budget_of.

// A share (0.5 for half) of what the plain step needs. Of several courses, of the one that needs most
// so far. From 1 on there are 64 bytes more for each storage, so that aligned addresses fit. Throws Error
// unless the share is above 0.
std::function<int64_t(const Graph&)> share_of_plain_peak(double share);

// What the machine, or the memory cgroup of the process, has left when the first course is planned, less
// a tenth of it, and what the step's parameters, gradients and state take already.
std::function<int64_t(const Graph&)> available_memory();

}  // namespace remat
