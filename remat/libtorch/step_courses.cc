// SPDX-License-Identifier: Apache-2.0
// Step: which of the courses that it has recorded are planned and kept.
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <set>

#include "remat/core/error.h"
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
    seen_once_.push_back(recorder.trace);  // which undoing the call still needs
    for (detail::SeenStorage& storage : seen_once_.back().storages) {
      if (storage.external) {
        storage.external->tensor = at::Tensor();
      }
    }
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
    arena_->use_only(0);
  }
  while (variants_.size() >= static_cast<size_t>(options_.max_variants)) {
    const auto oldest = std::ranges::min_element(variants_, {}, &Variant::last_used);
    if (last_ == oldest->get()) {
      last_ = nullptr;
    }
    variants_.erase(oldest);
  }
  std::unique_ptr<Variant> variant =
      detail::make_variant(recorder, options_, channel_model(),
                           [this](const MoveFailed& failed) { channel_failed(failed); },
                           [this](int64_t bytes) { return arena_of(bytes); }, variants_,
                           memory_limit_.value_or(kNoBudget));
  if (recorder.pool() != nullptr) {
    if (arena_ != nullptr) {  // a saved plan has not been tried in it
      arena_->use_only(0);  // what is held is about to get memory of its own
    }
    variant->report.spilled_bytes = recorder.pool()->counts().written_bytes;
  }
  variant->report.capture_seconds = capture_seconds_;
  variant->last_used = calls_;
  last_ = variant.get();
  variants_.push_back(std::move(variant));
  adopted_ = true;
}

}  // namespace remat
