// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace remat {

// What of a method's results had the bits of plain LibTorch's, at every step. With the update
// inside of the step there are no gradients after it, but parameters and what the optimizer keeps.
struct SameBits {
  bool loss = true;
  std::optional<bool> gradients = true;
  std::optional<bool> parameters = {};
  std::optional<bool> optimizer_state = {};
  bool buffers = true;
  bool rng = true;
  bool all() const {
    return loss && gradients.value_or(true) && parameters.value_or(true) &&
           optimizer_state.value_or(true) && buffers && rng;
  }
};

// How one way of training went: a plan that was executed, or eager checkpointing.
struct MethodReport {
  std::string method = {};           // as asked for: a strategy, or "checkpoint"
  std::string chosen_strategy = {};  // that made the plan; empty for eager methods
  bool feasible = true;         // if not, nothing below was measured
  std::string fault = {};            // why not
  std::optional<int64_t> predicted_peak_bytes = {};  // none for eager methods
  std::optional<int64_t> reserved_bytes = {};        // externals and arena
  int64_t measured_peak_bytes = 0;
  std::optional<int64_t> resident_bytes = {};  // what the process grew by; none where it cannot be known
  int64_t outside_allocations = 0;        // requests that the arena did not answer
  int64_t recomputed_ops = 0;
  int64_t packed_values = 0;
  int64_t offloaded_bytes = 0;  // in every step
  double plan_seconds = 0;
  bool saved_plan = false;         // by the plan of an earlier process
  int64_t step_ns = 0;             // median
  double time_ratio_to_eager = 0;  // median of the rounds' ratios
  SameBits bit_identical = {};
};

// A run of `rounds` training steps with every method beside plain LibTorch.
struct RunReport {
  std::string model = {};
  int64_t parameters = 0;
  int64_t budget_bytes = 0;
  int64_t keep_all_peak_bytes = 0;
  int64_t floor_bytes = 0;
  std::string floor_op = {};
  int64_t external_bytes = 0;  // parameters, buffers, batch, ...: part of every peak
  int64_t eager_peak_bytes = 0;
  std::optional<int64_t> eager_resident_bytes = {};
  int64_t eager_step_ns = 0;
  int rounds = 0;
  bool verified = false;  // the schedule by the independent checker, the run with poisoned frees
  double first_loss = 0;
  double last_loss = 0;
  std::vector<MethodReport> methods = {};  // the first is what was asked for, the others were compared
};

std::string run_text(const RunReport& report);
nlohmann::json run_json(const RunReport& report);

// What is wrong with a method's results, on one line; empty if nothing is.
std::string broken_promise(const RunReport& report, const MethodReport& method);

}  // namespace remat
