// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/plan_cells.h"

namespace remat::bench {

// The stages of a search that can be left out, to see what each is worth.
struct Stage {
  std::string_view name;
  bool SearchStages::*on;
};
std::span<const Stage> search_stages();

// What the plans of one strategy lose without a stage, and what it costs.
struct StageWorth {
  int64_t slower = 0;  // cells in which both fit, or only the plan with the stage
  int64_t faster = 0;  // likewise, the other way round
  double points = 0;   // overhead in % of the step's time that is added where both fit, in sum
  double worst_points = 0;
  std::string worst;    // that cell: "resnet50 20 %"; empty if none is slower
  int64_t higher = 0;   // graphs whose lowest budget is higher, or that fit nowhere
  int64_t wasted = 0;   // plans whose arena is larger than what is live
  double seconds = 0;   // of CPU time, of the cells
};

// Both tables hold the same graphs, one strategy each and the same budgets; the second was made without the
// stage.
StageWorth worth_of_stage(const std::vector<GraphRows>& with, const std::vector<GraphRows>& without);

}  // namespace remat::bench
