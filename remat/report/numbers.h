// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "remat/core/graph.h"

// How reports write shares, ops and layers. Formatting stays in the source: LibTorch has an fmt of its own.
namespace remat {

double percent(int64_t part, int64_t whole);

// "12.5 %"
std::string share(int64_t part, int64_t whole);

// "layer1.0.conv2/convolution.12 forward"
std::string op_label(const Graph& graph, OpId id);

// "layer1.0.conv2" -> "layer1.0" at depth 2, all of it at 0; kNoLayer where there is none.
inline constexpr std::string_view kNoLayer = "(no layer)";
std::string layer_of(const std::string& scope, int depth);

}  // namespace remat
