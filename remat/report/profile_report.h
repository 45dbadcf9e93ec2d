// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/simulate.h"
#include "remat/report/op_costs.h"
#include "remat/report/text_style.h"

namespace remat {

// One line of a breakdown: bytes that are resident at the peak, and time over the whole step.
struct ProfileRow {
  std::string name;
  int64_t bytes = 0;
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;
  int64_t optimizer_ns = 0;
  int64_t ops = 0;
  OpCost cost = {};  // of layers: what their ops make

  int64_t time_ns() const { return forward_ns + backward_ns + optimizer_ns; }
};

// Where time and memory of a step go when everything is kept, nothing reused: as the plain
// framework runs it. Each of the breakdowns by role, phase and layer sums to keep_all_peak_bytes.
struct ProfileReport {
  std::string model;
  int64_t op_count = 0;
  int64_t storage_count = 0;
  int64_t keep_all_peak_bytes = 0;
  std::string peak_op;
  int64_t op_time_ns = 0;         // the sum over ops
  std::vector<ProfileRow> roles;  // workspace is one of them
  std::vector<ProfileRow> phases; // a storage belongs to the phase and the layer that made it;
  std::vector<ProfileRow> layers; // an external to the layer that first uses it. Most bytes first
  std::vector<ProfileRow> kinds;  // of ops, slowest first; bytes: what they made of it
  Moment at_peak = {};
  std::vector<Moment> timeline;        // at every op of the given order
  size_t peak_run = 0;                 // where in it the peak is reached first
  std::shared_ptr<const Graph> graph;  // what was profiled

  // What only the caller knows.
  int64_t eager_peak_bytes = 0;  // counted while plain LibTorch ran the step
  int64_t step_ns = 0;           // of the whole replayed step
  int rounds = 0;                // of measuring
};

// `depth`: how many parts of a layer's name count ("layer1.0.conv2" has three); 0 is all of them.
ProfileReport profile(const Graph& graph, int depth);

// `rows` limits the layers and the kinds of ops; what is left out is summed up in one more row.
std::string profile_text(const ProfileReport& report, size_t rows, const TextStyle& style = {});
nlohmann::json profile_json(const ProfileReport& report);
// What the page shows beyond that: "ops", a table with the costs of each, and "timeline".
nlohmann::json profile_details_json(const ProfileReport& report);

}  // namespace remat
