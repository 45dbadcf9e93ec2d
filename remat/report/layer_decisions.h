// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "remat/core/explain.h"
#include "remat/core/graph.h"
#include "remat/core/plan.h"

namespace remat {

// What a plan does with a layer: with the values that the layer makes, and how much longer its ops take.
struct LayerDecisions {
  std::string layer;
  int64_t kept_values = 0;  // there was something to decide about them
  int64_t kept_bytes = 0;
  int64_t recomputed_values = 0;
  int64_t recomputed_bytes = 0;
  int64_t packed_values = 0;
  int64_t packed_bytes = 0;  // before they are
  int64_t offloaded_values = 0;
  int64_t offloaded_bytes = 0;
  int64_t recomputed_ops = 0;  // runs beyond the first
  int64_t extra_ns = 0;        // that they take, and packing and unpacking
};

// Layers in which there was something to decide, in the order of the graph. `depth`: how many parts of a
// layer's name count, 0 is all. `explanations` are those of the plan.
std::vector<LayerDecisions> decisions_by_layer(const Graph& graph, const Plan& plan,
                                               const std::vector<Explanation>& explanations, int depth);

// A table with the sum of its rows below.
std::string layer_decisions_text(const std::vector<LayerDecisions>& layers);
nlohmann::json layer_decisions_json(const std::vector<LayerDecisions>& layers);

}  // namespace remat
