// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>
#include <vector>

#include "remat/core/effort.h"
#include "remat/core/packing/problem.h"

namespace remat::testing {

// Items of any lives and sizes from 1 to `size`; one in five has two or three parts.
PackingProblem random_packing(std::mt19937_64& generator, int items, int32_t ticks, int64_t size);

// For a search that ends by its work alone: so many small nodes of the exact search, or moves of a repair.
Effort search_nodes(int64_t count);

// packing_fault for those items that lie, and within `height`; the rest have a negative offset.
std::string partial_packing_fault(const PackingProblem& problem, const std::vector<int64_t>& offset,
                                  int64_t height);

}  // namespace remat::testing
