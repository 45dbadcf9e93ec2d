// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "remat/core/graph.h"

// How reports write shares and ops. Formatting stays in the source: LibTorch has an fmt of its own.
namespace remat {

double percent(int64_t part, int64_t whole);

// "12.5 %"
std::string share(int64_t part, int64_t whole);

// "layer1.0.conv2/convolution.12 forward"
std::string op_label(const Graph& graph, OpId id);

}  // namespace remat
