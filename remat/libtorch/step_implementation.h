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
  void set_budget_bytes(int64_t bytes);
  StepReport report() const;
  void save_plan(const std::string& path) const;
  PlanFile plan_file() const;
  const detail::Variant& last() const;     // Throws Error before the first
  const detail::Variant& planned() const;  // the same; also where it has no plan any more
  const std::string& failed_op() const { return failed_op_; }
  bool undone() const { return undone_; }

 private:
  Batch run_once(const Batch& batch);
  int64_t use_arena(detail::Variant& variant);
  std::shared_ptr<detail::Arena> arena_of(int64_t bytes);
  std::shared_ptr<detail::SpillPool> make_pool();
  void open_channel();
  std::optional<ChannelModel> channel_model();
  void lose_channel();
  void channel_failed(const MoveFailed& failed);
  void do_without(detail::Variant& variant, const MoveFailed& failed);
  int64_t budget_of(const detail::Variant& variant) const;
  void find_plan(detail::Variant& variant, int64_t budget_bytes);
  void plan_for(detail::Variant& variant);
  void take_better_plan(detail::Variant& variant);
  void take_if_better(detail::Variant& variant, detail::StepPlan better);
  void improve(detail::Variant& variant);
  void plan_while_nothing_runs(detail::Variant& variant);
  void release_arena();
  void adapt_to_memory();
  void followed(detail::Variant& variant);
  void undo(detail::StepRun& run);
  void learn(detail::StepRun& run, const Batch& results);
  void adopt(detail::Recorder& recorder);
  int64_t expected_pool_bytes() const;
  void warn_of_folder(const std::string& folder, int64_t needed_bytes) const;
  void warn_of_slow_disk(const detail::SpillCounts& counts) const;
  void say(const std::string& what) const;

  StepFunction function_;
  std::vector<detail::KnownTensor> known_;
  StepOptions options_;
  std::shared_ptr<detail::Arena> arena_;
  std::optional<ChannelModel> channel_model_;  // once it was measured
  std::string channel_text_;
  std::vector<std::unique_ptr<detail::Variant>> variants_;
  std::vector<detail::Trace> seen_once_;  // courses that were recorded and not planned
  detail::Variant* last_ = nullptr;
  std::optional<detail::Repetition> repetition_;  // once the function is no longer called
  std::string failed_op_;
  double capture_seconds_ = 0;
  // What no course shall use more than, while memory is short. Their budgets stay what they are.
  std::optional<int64_t> memory_limit_;
  int64_t calls_ = 0;
  int64_t planned_steps_ = 0;
  int64_t plain_steps_ = 0;
  int new_courses_in_a_row_ = 0;
  int plain_calls_left_ = 0;
  bool adopted_ = false;  // this call was planned
  bool undone_ = false;   // the last call was
  bool slices_ = true;
  bool said_plain_ = false;
  bool said_foreign_ = false;
};

}  // namespace remat
