// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "remat/report/text_style.h"

namespace remat {

// A step as it was planned or measured: what it needs, and how long it takes.
struct SweptStep {
  bool fits = false;  // within the limit, or the budget of the point
  std::optional<int64_t> peak_bytes = {};
  std::optional<int64_t> step_ns = {};  // none where it was not run, or would not fit
};

// One batch size, without a plan and with one.
struct BatchPoint {
  int64_t batch = 0;
  SweptStep plain = {};
  bool plain_estimated = false;  // too large to be tried here: from smaller sizes. There is no plan then
  std::optional<int64_t> floor_bytes = {};
  int64_t budget_bytes = 0;  // of the plan; 0: there is none
  SweptStep planned = {};
  int64_t recomputed_ops = 0;
  std::string strategy = {};  // that made the plan
  std::string fault = {};     // why there is no plan
};

// What one strategy makes of one budget, at the batch size of the frontier.
struct FrontierPoint {
  std::string strategy;
  int64_t budget_bytes = 0;
  SweptStep step = {};
  double time_ratio = 0;  // to the plain step
  int64_t recomputed_ops = 0;
};

// The largest batch size that fits.
struct LargestBatch {
  int64_t batch = 0;  // 0: none
  // From the graphs of other sizes, not captured there.
  bool estimated = false;

  bool operator==(const LargestBatch&) const = default;
};

// A model at several batch sizes, and at one of them inside several budgets by every strategy.
struct SweepReport {
  std::string model;  // its label, batch size included
  bool measured = false;  // real steps; otherwise sums of the ops' times and the memory model's bytes
  int steps = 0;          // of each point, if measured
  bool interrupted = false;
  int64_t limit_bytes = 0;  // 0: not known yet, for it is a share of a peak
  bool limit_given = false;  // otherwise it is what the machine has left
  std::vector<BatchPoint> batches = {};
  int64_t frontier_batch = 0;
  int64_t frontier_plain_peak_bytes = 0;
  int64_t frontier_plain_step_ns = 0;
  std::vector<FrontierPoint> frontier = {};
  // Of all sizes, where they were searched for.
  std::optional<LargestBatch> found_plain = {};
  std::optional<LargestBatch> found_planned = {};
  std::string next_reason = {};  // why no larger one fits with a plan, or why it was not searched for

  bool searched() const { return found_plain.has_value() && found_planned.has_value(); }
  // Of all sizes if they were searched for, else of those that were tried.
  LargestBatch largest_plain() const;
  LargestBatch largest_planned() const;
};

std::string sweep_text(const SweepReport& report, const TextStyle& style = {});
nlohmann::json sweep_json(const SweepReport& report);

}  // namespace remat
