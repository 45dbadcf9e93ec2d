// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/step.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <set>

#include "remat/core/error.h"
#include "remat/libtorch/capture.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/step_implementation.h"

namespace remat {

using detail::concat;
using detail::Recorder;
using detail::StepRun;
using detail::Variant;

namespace {

// So many courses are planned as soon as they are seen; a program that has more of them must show
// each twice.
constexpr size_t kPlannedAtOnce = 3;
constexpr size_t kRememberedCourses = 8;
// After so many new courses in a row the program is taken to be different every time, and is run
// without being watched; now and then it gets another chance.
constexpr int kNewCoursesInARow = 6;
constexpr int kPlainCalls = 50;

// Calls visit(tensor) for the leaves whose gradients the history of a tensor ends in.
template <typename Visit>
void visit_leaves(const at::Tensor& tensor, Visit visit) {
  std::vector<torch::autograd::Node*> open;
  std::set<const torch::autograd::Node*> seen;
  const auto add = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      open.push_back(node);
    }
  };
  add(tensor.grad_fn().get());
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      visit(leaf->variable);
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      add(edge.function.get());
    }
  }
}

// Whether the run left tensors behind that the next one will find (the optimizer's state, a table
// that is made once): then the next one takes another course.
bool prepared_something(const Recorder& recorder, const Batch& results) {
  std::vector<const c10::StorageImpl*> expected;
  const auto expect = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) {
      expected.push_back(tensor.storage().unsafeGetStorageImpl());
    }
  };
  for (const at::Tensor& result : results) {
    expect(result);
    if (result.defined()) {
      visit_leaves(result, [&](const at::Tensor& leaf) {
        expect(leaf);
        expect(leaf.grad());
      });
    }
  }
  for (const detail::SeenStorage& storage : recorder.trace.storages) {
    if (storage.external && storage.external->tensor.defined() && storage.role == Role::param) {
      expect(storage.external->tensor.grad());
    }
  }
  for (size_t i = 0; i < recorder.trace.storages.size(); ++i) {
    if (recorder.trace.storages[i].output &&
        std::ranges::find(expected, recorder.held[i].unsafeGetStorageImpl()) == expected.end()) {
      return true;
    }
  }
  return false;
}

}  // namespace

Step::Implementation::Implementation(StepFunction function, std::vector<detail::KnownTensor> known,
                                     StepOptions options)
    : function_(std::move(function)), known_(std::move(known)), options_(std::move(options)) {
  options_.execute.poll = options_.host.poll;
  if (options_.budget_bytes < 0) {
    throw Error(concat("[step] the budget is ", options_.budget_bytes,
                       " bytes; expected a positive number"));
  }
  if (options_.max_variants < 1) {
    throw Error(concat("[step] max_variants is ", options_.max_variants, "; expected 1 or more"));
  }
}

void Step::Implementation::say(const std::string& what) const {
  if (options_.notice) {
    options_.notice(what);
  }
}

// All variants run in one arena. A larger one replaces it before a second could exist; a variant
// that needs less gives the rest back while it runs, since it needs more outside.
int64_t Step::Implementation::use_arena(Variant& variant) {
  const int64_t bytes = variant.placement().arena_bytes;
  int64_t moved_bytes = 0;
  if (arena_ != nullptr) {
    moved_bytes = arena_->reclaim();
  }
  if (arena_ == nullptr || arena_->bytes() < bytes) {
    for (const auto& each : variants_) {
      each->runner.reset();
    }
    arena_.reset();
    arena_ = make_arena(bytes);
  }
  arena_->use_only(bytes);
  if (variant.runner == nullptr) {
    variant.runner = std::make_unique<detail::Runner>(variant.recording(), variant.schedule,
                                                      variant.placement(), arena_, options_.execute);
  }
  return moved_bytes;
}

Batch Step::Implementation::run(const Batch& batch) {
  adopted_ = false;
  Batch results = run_once(batch);
  if (adopted_) {
    detail::cpu_device().trim();  // what the recording held has only been freed now
  }
  return results;
}

Batch Step::Implementation::run_once(const Batch& batch) {
  if (detail::capturing()) {
    throw Error("[step] the step is called inside of another step, whose plan would not see what it does; "
                "expected one step around everything: call the function itself there");
  }
  ++calls_;
  failed_op_.clear();
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
    Batch results = detail::repeat(*last_, *repetition_, batch,
                                   [this](Variant& variant) { return use_arena(variant); });
    followed(*last_);
    return results;
  }
  const detail::StepContext context{options_, known_, variants_, slices_,
                                    [this](Variant& variant) { return use_arena(variant); }};
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
    run.undo();
    throw;
  } catch (...) {
    run.abandon();
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
    } catch (const Interrupted&) {
      run.undo();
      throw;
    }
  }
  return results;
}

void Step::Implementation::followed(Variant& variant) {
  ++planned_steps_;
  new_courses_in_a_row_ = 0;
  variant.last_used = calls_;
  last_ = &variant;
  variant.counts = variant.runner->counts();
  if (variant.counts.outside_allocations > 0) {
    say(concat(variant.counts.outside_allocations, " requests for ",
               format_bytes(variant.counts.outside_bytes),
               " were not foreseen by the plan and answered outside of the arena"));
  }
}

// The call ran plainly and was recorded.
void Step::Implementation::learn(StepRun& run, const Batch& results) {
  ++plain_steps_;
  Recorder& recorder = *run.recorder();
  const bool first = variants_.empty() && seen_once_.empty();
  if (!run.difference().empty()) {
    say(concat("the step took another course than before, which was recorded: ", run.difference()));
  }
  const auto known = std::ranges::find_if(seen_once_, [&](const detail::Trace& trace) {
    return detail::same_course(trace, recorder.trace);
  });
  new_courses_in_a_row_ = known != seen_once_.end() ? 0 : new_courses_in_a_row_ + 1;
  if (!first && new_courses_in_a_row_ > kNewCoursesInARow) {
    new_courses_in_a_row_ = 0;
    plain_calls_left_ = kPlainCalls;
    if (!said_plain_) {
      say(concat("the step takes another course at every call and is run plainly, without a budget; "
                 "the last difference: ", run.difference()));
      said_plain_ = true;
    }
    return;
  }
  if (recorder.generator_moved()) {
    if (!said_plain_) {
      say("the step is run plainly, without a budget: its function sets a generator's seed or state, "
          "which cannot be followed; do so between steps");
      said_plain_ = true;
    }
    return;
  }
  if (recorder.uses_more_than_batch()) {
    slices_ = false;  // the function holds a tensor that the batch is a part of
    variants_.clear();
    seen_once_.clear();
    last_ = nullptr;
    return;
  }
  const bool at_once = variants_.size() < kPlannedAtOnce && !prepared_something(recorder, results);
  if (!at_once && known == seen_once_.end()) {
    if (seen_once_.size() >= kRememberedCourses) {
      seen_once_.erase(seen_once_.begin());
    }
    for (detail::SeenStorage& storage : recorder.trace.storages) {
      if (storage.external) {
        storage.external->tensor = at::Tensor();
      }
    }
    seen_once_.push_back(std::move(recorder.trace));
    return;
  }
  if (known != seen_once_.end()) {
    seen_once_.erase(known);
  }
  adopt(recorder);
}

void Step::Implementation::adopt(Recorder& recorder) {
  if (arena_ != nullptr) {
    arena_->reclaim();  // now: the planned step is tried in it
  }
  while (variants_.size() >= static_cast<size_t>(options_.max_variants)) {
    const auto oldest = std::ranges::min_element(variants_, {}, &Variant::last_used);
    if (last_ == oldest->get()) {
      last_ = nullptr;
    }
    variants_.erase(oldest);
  }
  std::unique_ptr<Variant> variant =
      detail::make_variant(recorder, options_, [this](int64_t bytes) {
        if (arena_ == nullptr || arena_->bytes() < bytes) {
          for (const auto& each : variants_) {
            each->runner.reset();
          }
          arena_.reset();
          arena_ = make_arena(bytes);
        }
        return arena_;
      });
  variant->report.capture_seconds = capture_seconds_;
  variant->last_used = calls_;
  last_ = variant.get();
  variants_.push_back(std::move(variant));
  adopted_ = true;
}

const Variant& Step::Implementation::last() const {
  if (last_ == nullptr) {
    throw Error(calls_ == 0 ? "[step] nothing to report; run the step first"
                            : "[step] nothing to report: no call has been planned yet; a step that "
                              "prepares something, or differs every time, runs plainly");
  }
  return *last_;
}

StepReport Step::Implementation::report() const {
  const Variant& variant = last();
  StepReport report = variant.report;
  const Baseline baseline = keep_all_baseline(variant.graph);
  const Simulation simulation = simulate(variant.graph, variant.schedule);
  report.keep_all_peak_bytes = baseline.peak_bytes;
  report.keep_all_time_ns = baseline.time_ns;
  report.eager_peak_bytes = variant.trace.eager_peak_bytes;
  report.floor_bytes = std::min(floor(variant.graph, variant.plan).bytes, variant.plan.peak_bytes);
  report.predicted_peak_bytes = simulation.peak_bytes;
  report.counts = variant.counts;
  report.measured_peak_bytes = variant.counts.peak_bytes;
  report.arena_bytes = variant.placement().arena_bytes;
  report.external_bytes = variant.graph.external_bytes();
  report.peak_bytes = report.external_bytes + report.arena_bytes;
  report.time_ns = simulation.time_ns;
  report.strategy = variant.plan.strategy;
  report.variants = static_cast<int>(variants_.size());
  report.planned_steps = planned_steps_;
  report.plain_steps = plain_steps_;
  report.timeline = simulation.timeline;
  return report;
}

Step::Step(StepFunction function, StepOptions options)
    : implementation_(std::make_unique<Implementation>(
          std::move(function), std::vector<detail::KnownTensor>(), std::move(options))) {}
Step::~Step() = default;
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;

Batch Step::operator()(const Batch& batch) { return implementation_->run(batch); }
StepReport Step::report() const { return implementation_->report(); }
const Graph& Step::graph() const { return implementation_->last().graph; }
const Plan& Step::plan() const { return implementation_->last().plan; }
const Schedule& Step::schedule() const { return implementation_->last().schedule; }
const std::string& Step::failed_op() const { return implementation_->failed_op(); }

}  // namespace remat
