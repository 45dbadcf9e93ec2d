// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/simulate.h"

namespace remat {

// One line of a breakdown: bytes that are resident at the peak, and time over the whole step.
struct ProfileRow {
  std::string name;
  int64_t bytes = 0;
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;  // and optimizer
  int64_t ops = 0;

  int64_t time_ns() const { return forward_ns + backward_ns; }
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
  std::vector<Moment> timeline;   // at every op of the given order

  // What only the caller knows.
  int64_t eager_peak_bytes = 0;  // counted while plain LibTorch ran the step
  int64_t step_ns = 0;           // of the whole replayed step
  int rounds = 0;                // of measuring
};

// `depth`: how many parts of a layer's name count ("layer1.0.conv2" has three); 0 is all of them.
ProfileReport profile(const Graph& graph, int depth);

// `rows` limits the layers and the kinds of ops; what is left out is summed up in one more row.
std::string profile_text(const ProfileReport& report, size_t rows);
nlohmann::json profile_json(const ProfileReport& report);
// A page that needs nothing else: the timeline as inline SVG, then the tables.
std::string profile_html(const ProfileReport& report);

}  // namespace remat
