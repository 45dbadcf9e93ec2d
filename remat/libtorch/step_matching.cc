// SPDX-License-Identifier: Apache-2.0
// StepRun: whether a call is the recorded one, and which variant takes over where it is not.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "remat/core/error.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/step_run.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {

std::string StepRun::tensor_mismatch(const SeenOp& seen, Values arguments) const {
  size_t next = 0;
  std::string found;
  c10::SmallVector<std::pair<const c10::StorageImpl*, StorageNumber>, 4> new_ones;
  visit_tensors(arguments, [&](const at::Tensor& tensor, TensorPlace place) {
    if (!found.empty()) {
      return;
    }
    if (next >= seen.tensors.size() || seen.tensors[next].place != place) {
      found = "got other tensors";
      return;
    }
    const SeenTensor& expected = seen.tensors[next++];
    if (!tensor.has_storage() || !same_shape(tensor, expected.view)) {
      found = concat("got a tensor of sizes ", tensor.sizes(), " instead of ",
                     c10::IntArrayRef(expected.view.sizes), ", or of another type or stride");
      return;
    }
    const c10::StorageImpl* impl = tensor.storage().unsafeGetStorageImpl();
    const StorageNumber number = expected.view.storage;
    const bool met = index(number) < storages_.size() && storages_[index(number)].met;
    const std::optional<StorageNumber> known = number_of(impl);
    const SeenStorage& storage = variant_->trace[number];
    int64_t base = met ? base_of(number) : 0;
    bool same = false;
    if (met) {
      same = known == number;
    } else if (known) {
      same = storage.before_host_write == known;
      base = same ? base_of(*known) : 0;
    } else if (storage.external) {
      const auto other = std::ranges::find_if(new_ones, [&](const auto& each) {
        return (each.first == impl) != (each.second == number);
      });
      same = other == new_ones.end() && static_cast<int64_t>(impl->nbytes()) == storage.bytes &&
             storage.creator < 0;
      new_ones.emplace_back(impl, number);
    }
    if (same && met && !storage.host_writes_later && !same_as_copy(number)) {
      found = "got a tensor that the host has changed since an op used it";
    } else if (!same) {
      found = "got another tensor";
    } else if (tensor.storage_offset() * static_cast<int64_t>(tensor.dtype().itemsize()) - base !=
               expected.view.offset * static_cast<int64_t>(tensor.dtype().itemsize())) {
      found = "got another part of a tensor";
    }
  });
  if (found.empty() && next != seen.tensors.size()) {
    found = "got other tensors";
  }
  return found;
}

// How the call differs from the recorded one; empty if it does not.
std::string StepRun::mismatch(const SeenOp& seen, const c10::OperatorHandle& op,
                              c10::DispatchKeySet keys, Values arguments) const {
  if (!(seen.op == op)) {
    return concat("was ", call_text(seen), " before");
  }
  if (seen.grad_mode != c10::GradMode::is_enabled() ||
      seen.inference_mode != c10::InferenceMode::is_enabled() ||
      keys_below_intercept(seen.keys) != keys_below_intercept(keys)) {
    return "runs in another mode (gradients, inference, autocast)";
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& recorded = seen.arguments[i];
    const c10::IValue& found = arguments[i];
    if (holds_tensors(recorded)) {
      if (!holds_tensors(found)) {
        return "got other tensors";
      }
      continue;
    }
    if (holds_tensors(found)) {
      return "got other tensors";
    }
    const bool same = recorded.isInt() && found.isInt()   ? recorded.toInt() == found.toInt()
                      : recorded.isNone() || found.isNone() ? recorded.isNone() == found.isNone()
                      : recorded.isBool() && found.isBool() ? recorded.toBool() == found.toBool()
                      : recorded.tagKind() == found.tagKind() && recorded == found;
    if (!same && !may_be_taken_over(op, i, recorded, found)) {
      return concat("argument '", op.schema().arguments()[i].name(), "' was ", recorded,
                    " before and is ", found);
    }
  }
  return tensor_mismatch(seen, arguments);
}

// Another number for an op of the trace, in whatever parts it stands in the graph.
void StepRun::set_number(Variant& variant, size_t trace_index, size_t argument,
                         const c10::IValue& value) {
  variant.trace.ops[trace_index].arguments[argument] = value;
  for (const OpId op : variant.made.ops_of[trace_index]) {
    const int32_t element = variant.made.part_of[index(op)].element;
    const c10::IValue part = element < 0 ? value : part_of_argument(value, element);
    variant.made.recording.tape[index(op)].arguments[argument] = part;
    if (variant.runner != nullptr) {
      variant.runner->set_argument(op, argument, part);
    }
  }
}

// Takes over what is new in a call that matches: numbers, and externals that are met.
void StepRun::accept(SeenOp& seen, size_t trace_index, Values arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (traits_of(seen.op).free_number[i] && !holds_tensors(arguments[i]) &&
        !(seen.arguments[i].tagKind() == arguments[i].tagKind() &&
          seen.arguments[i] == arguments[i])) {
      set_number(*variant_, trace_index, i, arguments[i]);
    }
  }
  size_t next = 0;
  visit_tensors(arguments, [&](const at::Tensor& tensor, TensorPlace) {
    const SeenTensor& expected = seen.tensors[next++];
    const StorageNumber number = expected.view.storage;
    c10::StorageImpl* impl = tensor.storage().unsafeGetStorageImpl();
    if (number_of(impl) != number) {
      const std::optional<StorageNumber> before = variant_->trace[number].before_host_write;
      if (before && is_followed(*impl)) {
        access(*before);  // recorded, but not done this time
      }
      meet(number, impl);
    }
    if (!expected.shape_only && variant_->trace[number].external) {
      if (!storages_[index(number)].taken) {
        take(number, impl);
      }
      const auto writes = [&](const std::vector<StorageNumber>& numbers) {
        return std::ranges::find(numbers, number) != numbers.end();
      };
      if (seen.kind == CallKind::op && (writes(seen.updates) || writes(seen.effects))) {
        hide(number, *impl);
      }
      if (variant_->trace[number].role == Role::param && tensor.is_leaf() && tensor.requires_grad()) {
        parameters_.emplace_back(
            c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(tensor.unsafeGetTensorImpl()));
      }
    }
  });
}

size_t StepRun::next_index() const {
  return position_ < variant_->program.size() ? variant_->program[position_]
                                              : variant_->trace.ops.size();
}

// What this course of the program writes must be written where it is, although another course would
// have read a copy.
bool StepRun::can_take_over(const Variant& variant) const {
  for (size_t i = 0; i < storages_.size(); ++i) {
    const SeenStorage& seen = variant.trace.storages[i];
    if (storages_[i].met && storages_[i].copied && seen.external && seen.external->written &&
        !same_as_copy(static_cast<StorageNumber>(i))) {
      return false;
    }
  }
  return true;
}

void StepRun::take_over_externals() {
  for (size_t i = 0; i < storages_.size(); ++i) {
    RunStorage& storage = storages_[i];
    const SeenStorage& seen = variant_->trace.storages[i];
    const auto live = storage.impl.lock();
    if (storage.copied && seen.external && seen.external->written && live != nullptr) {
      storage.bytes = c10::Storage(live);
      storage.copied = false;
      storage.bound = false;
    }
  }
}

// Another variant with the same calls so far, for which `fits` holds, takes over.
bool StepRun::switch_variant(const std::function<bool(Variant&)>& fits) {
  Variant* const left = variant_;
  for (const auto& each : context_.variants) {
    if (each.get() == left || !can_begin(*each) ||
        common_calls(each->trace, left->trace) < position_) {
      continue;
    }
    variant_ = each.get();
    if (!fits(*each) || !can_take_over(*each)) {
      continue;
    }
    // What was computed for the other plan lies elsewhere: this one starts again.
    if (runner_started_) {
      left->runner->undo();
      runner_started_ = false;
      note_generator();
      for (RunStorage& storage : storages_) {
        storage.bound = false;
      }
    }
    take_over_externals();
    for (size_t i = 0; i < position_; ++i) {
      const SeenOp& from = left->trace.ops[left->program[i]];
      for (size_t k = 0; k < from.arguments.size(); ++k) {
        if (traits_of(from.op).free_number[k]) {
          set_number(*each, each->program[i], k, from.arguments[k]);
        }
      }
    }
    return true;
  }
  variant_ = left;
  return false;
}

}  // namespace remat::detail
