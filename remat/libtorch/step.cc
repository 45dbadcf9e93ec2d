// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/step.h"

#include <algorithm>

#include "remat/core/error.h"
#include "remat/libtorch/capturing.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/step_implementation.h"

namespace remat {

using detail::concat;
using detail::StepRun;
using detail::Variant;

namespace {

StepOptions without_update(StepOptions options) {
  if (options.update) {
    throw Error("[step] the option update is for TrainingStep; expected a Step's function to do the "
                "update itself");
  }
  return options;
}

}  // namespace

Step::Implementation::Implementation(StepFunction function, std::vector<detail::KnownTensor> known,
                                     StepOptions options)
    : function_(std::move(function)), known_(std::move(known)), options_(std::move(options)) {
  options_.execute.poll = options_.host.poll;
  if (!options_.budget_of && options_.budget_bytes <= 0) {
    throw Error(concat("[step] the budget is ", options_.budget_bytes,
                       " bytes; expected a positive number"));
  }
  if (options_.max_variants < 1) {
    throw Error(concat("[step] max_variants is ", options_.max_variants, "; expected 1 or more"));
  }
  open_channel();
}

void Step::Implementation::say(const std::string& what) const {
  if (options_.notice) {
    options_.notice(what);
  }
}

// All variants run in one arena. A larger one replaces it before a second could exist; a variant
// that needs less gives the rest back while it runs, since it needs more outside.
std::shared_ptr<detail::Arena> Step::Implementation::arena_of(int64_t bytes) {
  if (arena_ == nullptr || arena_->bytes() < bytes) {
    for (const auto& each : variants_) {
      each->runner.reset();
    }
    arena_.reset();
    arena_ = make_arena(bytes);
  }
  arena_->use_only(bytes);
  return arena_;
}

int64_t Step::Implementation::use_arena(Variant& variant) {
  plan_for(variant);
  const int64_t moved_bytes = arena_ != nullptr ? arena_->reclaim() : 0;
  arena_of(variant.placement().arena_bytes);
  if (variant.runner == nullptr) {
    variant.runner = std::make_unique<detail::Runner>(variant.recording(), variant.schedule(),
                                                      variant.placement(), arena_, options_.execute);
    variant.runner->time_with(variant.improvement ? &variant.improvement->timing : nullptr);
  }
  return moved_bytes;
}

Batch Step::Implementation::run(const Batch& batch) {
  if (detail::capturing()) {
    throw Error("[step] the step is called inside of another step, whose plan would not see what it does; "
                "expected one step around everything: call the function itself there");
  }
  adopted_ = false;
  failed_op_.clear();
  undone_ = true;  // if something is thrown before anything runs
  if (options_.watch_memory) {
    adapt_to_memory();
  }
  if (plain_calls_left_ == 0) {
    for (const auto& each : variants_) {
      take_better_plan(*each);
    }
  }
  undone_ = false;
  Batch results = run_once(batch);
  if (adopted_) {
    detail::cpu_device().trim();  // what the recording held has only been freed now
  }
  return results;
}

Batch Step::Implementation::run_once(const Batch& batch) {
  ++calls_;
  if (!detail::sees_all_requests() && !said_foreign_) {
    say("another CPU allocator was installed over remat's: what it does not pass on is not counted, "
        "and the budget may be exceeded; install it before the first step");
    said_foreign_ = true;
  }
  if (plain_calls_left_ > 0) {
    --plain_calls_left_;
    ++plain_steps_;
    return function_(batch);
  }
  if (repetition_) {
    for (;;) {
      try {
        Batch results = detail::repeat(*last_, *repetition_, batch,
                                       [this](Variant& variant) { return use_arena(variant); });
        followed(*last_);
        return results;
      } catch (const MoveFailed& failed) {
        do_without(*last_, failed);
      }
    }
  }
  const detail::StepContext context{
      options_, known_, variants_, slices_, [this](Variant& variant) { return use_arena(variant); },
      [this](Variant& variant, const MoveFailed& failed) { do_without(variant, failed); },
      [this] { return make_pool(); },
      last_ != nullptr        ? static_cast<int64_t>(last_->trace.ops.size())
      : !seen_once_.empty() ? static_cast<int64_t>(seen_once_.back().ops.size())
                            : 0};
  StepRun run(context, batch);
  Batch results;
  try {
    const detail::CapturingGuard capturing_now;
    const detail::ByteSourceGuard bytes(&run);
    const detail::InterceptGuard intercept(&run);
    const int64_t start_ns = detail::cpu_device().now_ns();
    run.begin();
    results = function_(batch);
    run.end();
    capture_seconds_ = static_cast<double>(detail::cpu_device().now_ns() - start_ns) / 1e9;
  } catch (const Interrupted&) {
    undo(run);
    throw;
  } catch (...) {
    if (run.recorder() != nullptr && run.recorder()->spill_failed()) {
      undo(run);  // a full disk is no part of the program
    } else {
      run.abandon();
    }
    failed_op_ = run.failed_op();
    throw;
  }
  if (Variant* const variant = run.followed()) {
    followed(*variant);
    if (calls_ > options_.follow) {
      repetition_ = run.repetition(results);
    }
  } else {
    try {
      learn(run, results);
      run.settle();
      run.recorder()->check_pool();  // what outlives the call is not lost
    } catch (const Interrupted&) {
      undo(run);
      throw;
    } catch (...) {
      if (run.recorder()->spill_failed()) {
        undo(run);
      } else {
        run.settle();
      }
      throw;
    }
  }
  return results;
}

// Throws if it is not possible for all that the call has written.
void Step::Implementation::undo(StepRun& run) {
  undone_ = true;
  const std::vector<std::string> lost = run.undo();
  if (!lost.empty()) {
    throw Error(concat("[step] ", lost.size(), " tensors hold what a failed step has written to them, the first being ",
                       lost.front(), ": what they held before was in a file that was cut short, or whose disk fails; "
                       "expected it to stay: go on from a checkpoint"));
  }
}

void Step::Implementation::followed(Variant& variant) {
  ++planned_steps_;
  new_courses_in_a_row_ = 0;
  variant.last_used = calls_;
  last_ = &variant;
  variant.counts = variant.runner->counts();
  if (variant.improvement != nullptr) {
    improve(variant);
  }
  if (variant.counts.outside_allocations > 0) {
    say(concat(variant.counts.outside_allocations, " requests for ",
               format_bytes(variant.counts.outside_bytes),
               " were not foreseen by the plan and answered outside of the arena"));
  }
}

Step::Step(StepFunction function, StepOptions options)
    : implementation_(std::make_unique<Implementation>(
          std::move(function), std::vector<detail::KnownTensor>(), without_update(std::move(options)))) {}
Step::~Step() = default;
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;

Batch Step::operator()(const Batch& batch) { return implementation_->run(batch); }
StepReport Step::report() const { return implementation_->report(); }
const Graph& Step::graph() const { return implementation_->last().graph; }
const Plan& Step::plan() const { return implementation_->planned().plan(); }
const Schedule& Step::schedule() const { return implementation_->planned().schedule(); }
void Step::set_budget_bytes(int64_t bytes) { implementation_->set_budget_bytes(bytes); }
void Step::save_plan(const std::string& path) const { implementation_->save_plan(path); }
PlanFile Step::plan_file() const { return implementation_->plan_file(); }
const std::string& Step::failed_op() const { return implementation_->failed_op(); }
bool Step::undone() const { return implementation_->undone(); }

}  // namespace remat
