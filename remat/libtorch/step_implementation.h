// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "remat/libtorch/step.h"
#include "remat/libtorch/step_run.h"

namespace remat {

// Decides which courses of a program are planned and kept. StepRun does one call.
class Step::Implementation {
 public:
  Implementation(StepFunction function, std::vector<detail::KnownTensor> known, StepOptions options);

  Batch run(const Batch& batch);
  StepReport report() const;
  const detail::Variant& last() const;  // Throws Error before the first
  const std::string& failed_op() const { return failed_op_; }

 private:
  Batch run_once(const Batch& batch);
  int64_t use_arena(detail::Variant& variant);
  void followed(detail::Variant& variant);
  void learn(detail::StepRun& run, const Batch& results);
  void adopt(detail::Recorder& recorder);
  void say(const std::string& what) const;

  StepFunction function_;
  std::vector<detail::KnownTensor> known_;
  StepOptions options_;
  std::shared_ptr<detail::Arena> arena_;
  std::vector<std::unique_ptr<detail::Variant>> variants_;
  std::vector<detail::Trace> seen_once_;  // courses that were recorded and not planned
  detail::Variant* last_ = nullptr;
  std::optional<detail::Repetition> repetition_;  // once the function is no longer called
  std::string failed_op_;
  double capture_seconds_ = 0;
  int64_t calls_ = 0;
  int64_t planned_steps_ = 0;
  int64_t plain_steps_ = 0;
  int new_courses_in_a_row_ = 0;
  int plain_calls_left_ = 0;
  bool adopted_ = false;  // this call was planned
  bool slices_ = true;
  bool said_plain_ = false;
  bool said_foreign_ = false;
};

}  // namespace remat
