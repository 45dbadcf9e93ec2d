// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/step_run.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>

#include "remat/core/error.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/scope.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

// A tensor that the host made for this step is copied when it is first used, if it is small.
constexpr int64_t kSmallBytes = 4096;

c10::intrusive_ptr<c10::StorageImpl> owned(c10::StorageImpl* impl) {
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl);
}

std::string call_text(const SeenOp& op) {
  return concat(op.op.schema().name(), in_layer(op.scope));
}

}  // namespace

StepRun::StepRun(const StepContext& context, const Batch& batch)
    : context_(context), batch_(batch) {
  for (const at::Tensor& tensor : batch) {
    if (!context.slices || !tensor.defined() || tensor.numel() == 0 || !tensor.has_storage()) {
      continue;
    }
    const auto item = static_cast<int64_t>(tensor.dtype().itemsize());
    const int64_t begin = tensor.storage_offset() * item;
    const int64_t end = begin + span_bytes(tensor);
    const auto [region, first] =
        batch_regions_.try_emplace(tensor.storage().unsafeGetStorageImpl(), Region{begin, end - begin});
    if (!first) {
      Region& known = region->second;
      const int64_t known_end = known.base_bytes + known.bytes;
      known.base_bytes = std::min(known.base_bytes, begin);
      known.bytes = std::max(known_end, end) - known.base_bytes;
    }
  }
}

StepRun::~StepRun() { release(); }

// Bytes may be touched freely again.
void StepRun::release() {
  for (RunStorage& storage : storages_) {
    show(storage);
  }
  for (const auto& each : watched_) {
    unwatch(*each);
  }
  watched_.clear();
}

void StepRun::begin() {
  std::vector<Variant*> known;
  for (const auto& each : context_.variants) {
    known.push_back(each.get());
  }
  std::ranges::sort(known, std::greater(), &Variant::last_used);
  const auto fits = std::ranges::find_if(known, [&](Variant* each) { return can_begin(*each); });
  if (fits == known.end()) {
    if (!known.empty()) {
      const int threads = known.front()->trace.threads;
      difference_ = threads != at::get_num_threads()
                        ? concat("it ran with ", threads, " threads, now with ", at::get_num_threads())
                        : "the batch, or a parameter, has another number of bytes";
    }
    begin_recording();
    return;
  }
  variant_ = *fits;
  note_generator();
  for (const KnownTensor& each : context_.known) {
    c10::StorageImpl* impl = each.tensor.storage().unsafeGetStorageImpl();
    if (!number_of(impl)) {
      meet(static_cast<StorageNumber>(storages_.size()), impl);
    }
  }
  for (const at::Tensor& tensor : batch_) {
    if (tensor.defined() && !number_of(tensor.storage().unsafeGetStorageImpl())) {
      meet(static_cast<StorageNumber>(storages_.size()), tensor.storage().unsafeGetStorageImpl());
    }
  }
}

// The tensors that are there from the start must lie on as many storages, of the same sizes.
bool StepRun::can_begin(const Variant& variant) const {
  if (variant.trace.threads != at::get_num_threads()) {
    return false;
  }
  std::vector<const c10::StorageImpl*> seen;
  int64_t found = 0;  // storages of the batch
  const auto fits = [&](const at::Tensor& tensor, bool in_batch) {
    if (!tensor.defined() || !tensor.has_storage()) {
      return !tensor.defined();
    }
    const c10::StorageImpl* impl = tensor.storage().unsafeGetStorageImpl();
    if (std::ranges::find(seen, impl) != seen.end()) {
      return true;
    }
    if (seen.size() >= variant.trace.storages.size()) {
      return false;
    }
    const SeenStorage& storage = variant.trace.storages[seen.size()];
    seen.push_back(impl);
    found += in_batch ? 1 : 0;
    const auto region = batch_regions_.find(impl);
    const int64_t bytes = in_batch && region != batch_regions_.end()
                              ? region->second.bytes
                              : static_cast<int64_t>(impl->nbytes());
    return storage.external && storage.bytes == bytes &&
           (storage.role == Role::input) == in_batch;
  };
  const auto known_fits = [&](const KnownTensor& each) { return fits(each.tensor, false); };
  const auto batch_fits = [&](const at::Tensor& each) { return fits(each, true); };
  if (!std::ranges::all_of(context_.known, known_fits) || !std::ranges::all_of(batch_, batch_fits)) {
    return false;
  }
  const auto is_input = [](const SeenStorage& storage) { return storage.role == Role::input; };
  return std::ranges::count_if(variant.trace.storages, is_input) == found;
}

// --- storages ------------------------------------------------------------------------------------

void StepRun::meet(StorageNumber number, c10::StorageImpl* impl) {
  if (index(number) >= storages_.size()) {
    storages_.resize(index(number) + 1);
  }
  RunStorage& storage = storages_[index(number)];
  storage.met = true;
  storage.impl = c10::weak_intrusive_ptr<c10::StorageImpl>(owned(impl));
  number_of_[impl] = number;
}

std::optional<StorageNumber> StepRun::number_of(const c10::StorageImpl* impl) const {
  const auto found = number_of_.find(impl);
  return found == number_of_.end() ? std::nullopt : std::optional(found->second);
}

int64_t StepRun::base_of(StorageNumber number) const {
  if (variant_->trace[number].role != Role::input) {
    return 0;
  }
  const auto impl = storages_[index(number)].impl.lock();
  const auto region = batch_regions_.find(impl.get());
  return region == batch_regions_.end() ? 0 : region->second.base_bytes;
}

// An external is used for the first time: its bytes must be those it has now when the schedule runs.
// What the step writes must be written where it is. Of the rest, what the host is known to change, or
// owns, or made for this step, is copied; whoever asks for a pointer to the others is noticed.
void StepRun::take(StorageNumber number, c10::StorageImpl* impl) {
  RunStorage& storage = storages_[index(number)];
  const SeenStorage& seen = variant_->trace[number];
  storage.taken = true;
  const bool writes = seen.external && seen.external->written;
  const bool new_and_borrowed =
      is_borrowed(impl->data_ptr()) && seen.impl.lock().get() != impl;
  if (!writes && seen.bytes > 0 &&
      (seen.host_writes_later || seen.bytes <= kSmallBytes || new_and_borrowed)) {
    storage.copied = true;
    storage.bytes = copy_storage(impl->data(), base_of(number), seen.bytes);
    return;
  }
  storage.bytes = c10::Storage(owned(impl));
  if (!impl->has_materializer()) {
    watch(*impl);
    watched_.push_back(owned(impl));
  }
}

// A followed op writes the external: until the schedule has, nobody must see the bytes from before.
void StepRun::hide(StorageNumber number, c10::StorageImpl& impl) {
  RunStorage& storage = storages_[index(number)];
  if (storage.is_hidden || storage.copied || impl.nbytes() == 0) {
    return;
  }
  storage.hidden = std::move(impl._mutable_data_ptr_no_checks());
  storage.is_hidden = true;
  impl.set_data_ptr_noswap(reserve_addresses(static_cast<int64_t>(impl.nbytes())));
  watch(impl);
}

void StepRun::show(RunStorage& storage) {
  if (storage.is_hidden) {
    storage.is_hidden = false;
    c10::StorageImpl& shown = *storage.bytes.unsafeGetStorageImpl();
    unwatch(shown);
    if (in_fault_) {
      give_copy(shown, storage.hidden.get());
      stale_.push_back(std::move(shown._mutable_data_ptr_no_checks()));
    }
    shown.set_data_ptr_noswap(std::move(storage.hidden));
  }
}

const char* StepRun::bytes_of(const RunStorage& storage) const {
  return static_cast<const char*>(storage.is_hidden ? storage.hidden.get() : storage.bytes.data());
}

// Whether the host has left an external alone since it was copied.
bool StepRun::same_as_copy(StorageNumber number) const {
  const RunStorage& storage = storages_[index(number)];
  const auto live = storage.impl.lock();
  if (!storage.copied || live == nullptr) {
    return !storage.copied;
  }
  const int64_t base = base_of(number);
  return std::memcmp(static_cast<const char*>(live->data()) + base, bytes_of(storage) + base,
                     static_cast<size_t>(variant_->trace[number].bytes)) == 0;
}

// --- matching ------------------------------------------------------------------------------------

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

// Takes over what is new in a call that matches: numbers, and externals that are met.
void StepRun::accept(SeenOp& seen, size_t trace_index, Values arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (traits_of(seen.op).free_number[i] && !holds_tensors(arguments[i]) &&
        !(seen.arguments[i].tagKind() == arguments[i].tagKind() &&
          seen.arguments[i] == arguments[i])) {
      seen.arguments[i] = arguments[i];
      const std::optional<OpId> op = variant_->made.op_of[trace_index];
      if (op && variant_->runner != nullptr) {
        variant_->runner->set_argument(*op, i, arguments[i]);
      }
      if (op) {
        variant_->made.recording.tape[index(*op)].arguments[i] = arguments[i];
      }
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
      SeenOp& to = each->trace.ops[each->program[i]];
      for (size_t k = 0; k < from.arguments.size(); ++k) {
        if (traits_of(from.op).free_number[k]) {
          to.arguments[k] = from.arguments[k];
          if (const auto op = each->made.op_of[each->program[i]]) {
            each->made.recording.tape[index(*op)].arguments[k] = from.arguments[k];
            if (each->runner != nullptr) {
              each->runner->set_argument(*op, k, from.arguments[k]);
            }
          }
        }
      }
    }
    return true;
  }
  variant_ = left;
  return false;
}

// --- answering -----------------------------------------------------------------------------------

void StepRun::intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack& stack) {
  rethrow();
  if (recorder_ != nullptr) {
    recorder_->intercept(op, keys, stack);
  } else {
    follow(op, keys, stack);
  }
}

void StepRun::follow(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                     torch::jit::Stack& stack) {
  const size_t argument_count = op.schema().arguments().size();
  const auto difference = [&](Variant& variant) {
    return position_ < variant.program.size()
               ? mismatch(variant.trace.ops[variant.program[position_]], op, keys,
                          top(stack, argument_count))
               : std::string("came after the end before");
  };
  std::string why = difference(*variant_);
  if (why.empty()) {
    // The first time through, or what a read gives selects another variant.
  } else if (switch_variant([&](Variant& other) { return difference(other).empty(); })) {
    why.clear();
  }
  if (why.empty() && traits_of(op).random && generator_moved()) {
    why = "draws from a generator that the host has moved since the step began";
  }
  if (why.empty()) {
    const size_t trace_index = variant_->program[position_];
    SeenOp& seen = variant_->trace.ops[trace_index];
    accept(seen, trace_index, top(stack, argument_count));
    if (recorder_ == nullptr) {  // accept may have found that bytes are needed
      switch (seen.kind) {
        case CallKind::op:
        case CallKind::view:
          answer(seen, stack, {});
          ++position_;
          return;
        case CallKind::metadata:
          run_op(op, keys, stack);
          ++position_;
          return;
        case CallKind::made: {
          run_op(op, keys, stack);
          const Values results = top(stack, op.schema().returns().size());
          for (const SeenResult& result : seen.created) {
            meet(result.view.storage,
                 tensor_at(results, result.place).storage().unsafeGetStorageImpl());
          }
          ++position_;
          return;
        }
        case CallKind::read:
        case CallKind::access:
          if (answer_read(seen, trace_index, stack)) {
            ++position_;
            return;
          }
          why = "gave a tensor of another shape";
          break;
      }
    }
  }
  if (recorder_ == nullptr) {
    diverge(concat(op.schema().name(), in_layer(current_scope()), " ", why));
  }
  recorder_->intercept(op, keys, stack);
}

// Puts recorded results in place of the arguments.
void StepRun::answer(const SeenOp& seen, torch::jit::Stack& stack, Values read) {
  const size_t argument_count = seen.op.schema().arguments().size();
  const Values arguments = top(stack, argument_count);
  c10::SmallVector<c10::IValue, 4> results;
  for (size_t i = 0; i < seen.outcome.size(); ++i) {
    const bool given = !read.empty() && !holds_tensors(seen.outcome[i]);
    results.push_back(given ? read[i] : own_copy(seen.outcome[i]));
  }
  for (const SeenResult& result : seen.results) {
    if (result.argument) {
      put_tensor(results.data(), result.place, tensor_at(arguments, *result.argument));
      continue;
    }
    const StorageNumber number = result.view.storage;
    c10::intrusive_ptr<c10::StorageImpl> impl;
    if (std::ranges::find(seen.creates, number) != seen.creates.end() &&
        !(index(number) < storages_.size() && storages_[index(number)].met)) {
      impl = make_followed_storage(variant_->trace[number].bytes);
      meet(number, impl.get());
    } else {
      impl = storages_[index(number)].impl.lock();
    }
    const auto source = std::ranges::find_if(
        seen.tensors, [&](const SeenTensor& each) { return each.view.storage == number; });
    at::Tensor tensor =
        source == seen.tensors.end()
            ? make_tensor(result.view, c10::Storage(std::move(impl)))
            : make_alias(result.view, c10::Storage(std::move(impl)),
                         tensor_at(arguments, source->place).key_set());
    if (const int64_t base = variant_->trace[number].external ? base_of(number) : 0; base != 0) {
      tensor.unsafeGetTensorImpl()->set_storage_offset(
          result.view.offset + base / static_cast<int64_t>(tensor.dtype().itemsize()));
    }
    put_tensor(results.data(), result.place, tensor);
  }
  torch::jit::drop(stack, argument_count);
  for (c10::IValue& result : results) {
    stack.push_back(std::move(result));
  }
}

// The schedule runs as far as the value that the host waits for. False if its shape is another one
// than was recorded, and no other variant has that.
bool StepRun::answer_read(const SeenOp& seen, size_t trace_index, torch::jit::Stack& stack) {
  const std::optional<Values> values = run_until(*variant_->made.op_of[trace_index]);
  const auto same = [](const SeenOp& call, const std::optional<Values>& found) {
    return found && std::ranges::all_of(call.results, [&](const SeenResult& result) {
             return result.argument || same_shape(tensor_at(*found, result.place), result.view);
           });
  };
  if (same(seen, values)) {
    answer(seen, stack, *values);
    return true;
  }
  const Values arguments = top(stack, seen.op.schema().arguments().size());
  bool answered = false;
  switch_variant([&](Variant& other) {
    if (position_ >= other.program.size()) {
      return false;
    }
    const SeenOp& call = other.trace.ops[other.program[position_]];
    return call.op == seen.op && mismatch(call, seen.op, seen.keys, arguments).empty();
  }) && [&] {
    const size_t there = variant_->program[position_];
    SeenOp& call = variant_->trace.ops[there];
    accept(call, there, arguments);
    const std::optional<Values> again = run_until(*variant_->made.op_of[there]);
    answered = same(call, again);
    if (answered) {
      answer(call, stack, *again);
    }
    return answered;
  }();
  return answered;
}

// --- running -------------------------------------------------------------------------------------

// Before every stretch of the schedule: externals that were met since get their addresses.
void StepRun::start_runner() {
  if (!runner_started_) {
    // The arena moves what it lent: it must see the bytes of gradients from the step before.
    std::vector<StorageNumber> hidden;
    for (size_t i = 0; i < storages_.size(); ++i) {
      if (storages_[i].is_hidden) {
        show(storages_[i]);
        hidden.push_back(static_cast<StorageNumber>(i));
      }
    }
    const int64_t moved_bytes = context_.use_arena(*variant_);
    for (const StorageNumber number : hidden) {
      hide(number, *storages_[index(number)].bytes.unsafeGetStorageImpl());
    }
    variant_->runner->on_access([this](OpId op) { deliver(op); });
    variant_->runner->start();
    variant_->runner->counts().moved_bytes = moved_bytes;
    runner_started_ = true;
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    RunStorage& storage = storages_[i];
    if (storage.taken && !storage.bound) {
      const auto number = static_cast<StorageNumber>(i);
      auto* bytes = const_cast<char*>(bytes_of(storage));
      variant_->runner->bind(variant_->made.id_of[i], bytes + base_of(number));
      storage.bound = true;
    }
  }
}

void StepRun::note_generator() {
  at::Generator generator = default_generator(c10::Device(c10::kCPU));
  const std::lock_guard lock(generator.mutex());
  generator_ = GeneratorState::of(generator);
}

bool StepRun::generator_moved() const {
  at::Generator generator = default_generator(c10::Device(c10::kCPU));
  const std::lock_guard lock(generator.mutex());
  return !(GeneratorState::of(generator) == *generator_);
}

std::optional<Values> StepRun::run_until(OpId op) {
  start_runner();
  try {
    const std::optional<Values> values = variant_->runner->run_until(op);
    note_generator();
    return values;
  } catch (...) {
    fail();
    throw;
  }
}

// --- bytes on the host ---------------------------------------------------------------------------

std::optional<StorageNumber> StepRun::successor_of(StorageNumber number) const {
  for (size_t i = 0; i < variant_->trace.storages.size(); ++i) {
    if (variant_->trace.storages[i].before_host_write == number) {
      return static_cast<StorageNumber>(i);
    }
  }
  return std::nullopt;
}

bool StepRun::access_is_known(const Variant& variant, StorageNumber number) const {
  const size_t next = position_ < variant.program.size() ? variant.program[position_]
                                                         : variant.trace.ops.size();
  for (size_t i = 0; i < next; ++i) {
    const SeenOp& op = variant.trace.ops[i];
    if (op.kind == CallKind::access && op.reads.front() == number) {
      return true;
    }
  }
  return false;
}

// The schedule runs as far as the bytes of a storage that the host wants.
void StepRun::access(StorageNumber number) {
  run_until(*variant_->made.access_of[index(number)]);
}

// Gives the host a copy of a storage's bytes, which is what the storage is from now on.
void StepRun::deliver(OpId op) {
  const auto found = std::ranges::find(variant_->made.access_of, std::optional(op));
  const auto place = static_cast<size_t>(found - variant_->made.access_of.begin());
  const auto number = static_cast<StorageNumber>(place);
  RunStorage& storage = storages_[place];
  const auto impl = storage.impl.lock();
  if (impl == nullptr || !is_followed(*impl) || number_of(impl.get()) != number) {
    return;  // the program has let it go, or has it already
  }
  if (!variant_->trace[number].external) {
    give_copy(*impl, variant_->runner->address_in(op, variant_->made.id_of[place]));
  } else {
    // An external that the step has written: the host goes on with it, ops that still have to read it
    // read a copy.
    show(storage);
    storage.bytes = copy_storage(impl->data(), base_of(number), variant_->trace[number].bytes);
    storage.copied = true;
    variant_->runner->bind(variant_->made.id_of[place],
                           const_cast<char*>(bytes_of(storage)) + base_of(number));
  }
  storage.delivered = true;
  if (const std::optional<StorageNumber> next = successor_of(number)) {
    meet(*next, impl.get());
  }
}

bool StepRun::bytes_wanted_at(const void* address) noexcept {
  for (const RunStorage& storage : storages_) {
    const auto impl = storage.impl.lock();
    if (impl == nullptr || !is_followed(*impl) || !lies_in(*impl, address)) {
      continue;
    }
    try {
      in_fault_ = true;
      bytes_wanted(*impl);
    } catch (...) {
      error_ = std::current_exception();  // cannot leave a signal handler: comes out at the next call
    }
    in_fault_ = false;
    if (is_followed(*impl)) {
      try {
        give_copy(*impl, nullptr);
      } catch (...) {
        return false;
      }
    }
    return true;
  }
  return false;
}

void StepRun::rethrow() {
  if (touched_elsewhere_) {
    throw Error("[step] another thread touches tensors of the step while it runs; expected its ops and "
                "its tensors on one thread: join the thread's work before the step, or pass its "
                "results as part of the batch");
  }
  if (error_ != nullptr) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void StepRun::bytes_wanted(c10::StorageImpl& impl) {
  if (recorder_ != nullptr) {
    recorder_->bytes_wanted(impl);
    return;
  }
  const std::optional<StorageNumber> number = number_of(&impl);
  if (!number) {
    return;
  }
  const InterceptPause pause;
  RunStorage& storage = storages_[index(*number)];
  const SeenStorage& seen = variant_->trace[*number];
  if (is_followed(impl)) {
    const bool known =
        access_is_known(*variant_, *number) ||
        switch_variant([&](Variant& other) { return access_is_known(other, *number); });
    if (known) {
      access(*number);
    } else {
      diverge(concat("the host gets at the bytes of ",
                     seen.creator >= 0
                         ? "a result of " + call_text(variant_->trace.ops[static_cast<size_t>(seen.creator)])
                         : seen.name));
      recorder_->host_accessed(*number);
    }
    return;
  }
  // The host may write where the schedule still has to read.
  if (storage.taken && !storage.copied) {
    const int64_t base = base_of(*number);
    storage.bytes = copy_storage(impl.data(), base, seen.bytes);
    storage.copied = true;
    storage.bound = false;
  }
}

// --- leaving the known course --------------------------------------------------------------------

void StepRun::begin_recording() {
  recorder_ = std::make_unique<Recorder>(RecorderOptions{.verb = "step", .follows = true});
  recorder_->trace.threads = at::get_num_threads();
  for (const KnownTensor& each : context_.known) {
    recorder_->add_external(each.tensor, each.name, each.role,
                            {.kind = ExternalSource::Kind::tensor, .tensor = each.tensor});
  }
  recorder_->add_batch(batch_, context_.slices);
  listen_ = std::make_unique<ListenGuard>(recorder_.get());
  others_ = std::make_unique<OtherThreadsLog>();
}

void StepRun::diverge(const std::string& why) {
  difference_ = why;
  // The prefix draws from the generator as it was when the step began; if the host has moved it since,
  // it goes on from there afterwards.
  at::Generator generator = default_generator(c10::Device(c10::kCPU));
  const bool moved = generator_moved();
  const GeneratorState now = [&] {
    const std::lock_guard lock(generator.mutex());
    return GeneratorState::of(generator);
  }();
  if (runner_started_) {
    variant_->runner->undo();
    runner_started_ = false;
  } else if (moved) {
    const std::lock_guard lock(generator.mutex());
    generator_->restore(generator);
  }
  release();
  begin_recording();
  recorder_->expect(&variant_->trace);
  repeat_prefix(position_);
  recorder_->expect(nullptr);
  for (const auto& weak : parameters_) {
    if (const auto impl = weak.lock()) {
      recorder_->note_parameter(at::Tensor(impl));
    }
  }
  if (moved) {
    const std::lock_guard lock(generator.mutex());
    now.restore(generator);
  }
}

// Runs the calls that were followed, for real and in the order of the program, and gives the bytes
// to the tensors that the program holds. Below autograd, whose history is there already.
void StepRun::repeat_prefix(size_t count) {
  const Trace& trace = variant_->trace;
  std::vector<c10::Storage> bytes(trace.storages.size());
  std::vector<size_t> last_use(trace.storages.size(), 0);
  for (size_t i = 0; i < count; ++i) {
    for (const SeenTensor& tensor : trace.ops[variant_->program[i]].tensors) {
      last_use[index(tensor.view.storage)] = i;
    }
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (trace.storages[i].external && storages_[i].met) {
      const auto live = storages_[i].impl.lock();
      bytes[i] = storages_[i].taken ? storages_[i].bytes : c10::Storage(live);
    }
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    const auto number = static_cast<StorageNumber>(i);
    if (storages_[i].copied && i < recorder_->trace.storages.size()) {
      recorder_->rename(number, owned(bytes[i].unsafeGetStorageImpl()));
      recorder_->held[i] = bytes[i];
    }
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::AutoGradMode grad_mode(c10::GradMode::is_enabled());
  for (size_t i = 0; i < count; ++i) {
    const SeenOp& call = trace.ops[variant_->program[i]];
    torch::jit::Stack stack;
    for (const c10::IValue& argument : call.arguments) {
      stack.push_back(own_copy(argument));
    }
    for (const SeenTensor& tensor : call.tensors) {
      const StorageNumber number = tensor.view.storage;
      Window window = tensor.view;
      if (trace[number].external) {
        window.offset += base_of(number) / static_cast<int64_t>(c10::elementSize(window.dtype));
      }
      const at::Tensor argument = make_tensor(window, bytes[index(number)]);
      const auto before = trace[number].before_host_write;
      if (before && !recorder_->number_of(bytes[index(number)].unsafeGetStorageImpl())) {
        recorder_->host_wrote(*before, argument);
      }
      put_tensor(stack.data(), tensor.place, argument);
    }
    c10::GradMode::set_enabled(call.grad_mode);
    recorder_->repeat(call, stack);
    const Values results = top(stack, call.op.schema().returns().size());
    for (const SeenResult& result : call.created) {
      const size_t number = index(result.view.storage);
      if (call.kind == CallKind::made) {  // the host's bytes are in the one that the program has
        if (const auto live = storages_[number].impl.lock()) {
          bytes[number] = storages_[number].taken ? storages_[number].bytes : c10::Storage(live);
        }
        recorder_->rename(result.view.storage, owned(bytes[number].unsafeGetStorageImpl()));
      } else {
        bytes[number] = tensor_at(results, result.place).storage();
      }
    }
    stack.clear();
    const auto drop_after = [&](StorageNumber number) {
      const size_t each = index(number);
      if (!trace.storages[each].external && last_use[each] <= i &&
          storages_[each].impl.use_count() == 0) {
        bytes[each] = c10::Storage();
      }
    };
    for (const SeenTensor& tensor : call.tensors) {
      drop_after(tensor.view.storage);
    }
    std::ranges::for_each(call.creates, drop_after);
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    const auto number = static_cast<StorageNumber>(i);
    const auto live = storages_[i].impl.lock();
    if (live == nullptr || !storages_[i].met || i >= recorder_->trace.storages.size()) {
      continue;
    }
    if (storages_[i].delivered && !recorder_->number_of(live.get())) {
      recorder_->rename(number, live);
      recorder_->host_accessed(number);
      continue;
    }
    if (trace.storages[i].external) {
      // its bytes are its own
    } else if (is_followed(*live) && in_fault_) {
      give_copy(*live, bytes[i].data());  // somebody may have the address
    } else if (is_followed(*live)) {
      give_bytes(*live, std::move(bytes[i].unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
      bytes[i] = c10::Storage();
    }
    if (number_of_.at(live.get()) == number) {
      recorder_->rename(number, live);
      if (trace.storages[i].external && same_as_copy(number)) {
        recorder_->held[i] = c10::Storage(live);  // ops to come may write it
      }
    }
  }
}

// --- the end -------------------------------------------------------------------------------------

void StepRun::end() {
  rethrow();
  if (recorder_ == nullptr) {
    const auto whole = [&](Variant& variant) {
      if (position_ != variant.program.size()) {
        return std::string("the step ended before ") +
               call_text(variant.trace.ops[variant.program[position_]]);
      }
      for (size_t i = 0; i < storages_.size(); ++i) {
        const SeenStorage& seen = variant.trace.storages[i];
        const auto live = storages_[i].impl.lock();
        if (live != nullptr && !seen.external && is_followed(*live) && !seen.output &&
            number_of_.at(live.get()) == static_cast<StorageNumber>(i)) {
          return concat("a result of ", call_text(variant.trace.ops[static_cast<size_t>(seen.creator)]),
                        " is still held, which it was not before");
        }
      }
      return std::string();
    };
    std::string why = whole(*variant_);
    if (why.empty() && generator_moved()) {
      diverge("the host has moved the generator");
    } else if (!why.empty() && !switch_variant([&](Variant& other) { return whole(other).empty(); })) {
      diverge(why);
    }
  }
  if (recorder_ != nullptr) {
    listen_.reset();
    others_.reset();
    recorder_->finish();
    recorder_->keep();
    return;
  }
  start_runner();
  try {
    variant_->runner->run_rest();
  } catch (...) {
    fail();
    throw;
  }
  release();
  lend_outputs();
}

void StepRun::lend_outputs() {
  Variant& variant = *variant_;
  const auto& outputs = variant.graph.outputs;
  for (size_t i = 0; i < storages_.size(); ++i) {
    const auto live = storages_[i].impl.lock();
    if (live == nullptr || !variant.trace.storages[i].output || !is_followed(*live)) {
      continue;
    }
    const auto output = std::ranges::find(outputs, variant.made.id_of[i]) - outputs.begin();
    variant.runner->arena().lend(variant.runner->output_offset(static_cast<size_t>(output)), live);
  }
}

Repetition StepRun::repetition(const Batch& results) const {
  Repetition made;
  const auto made_of = [&](const at::Tensor& tensor) {
    Repetition::Made what{.tensor = tensor};
    const auto number = tensor.defined() && tensor.has_storage()
                            ? number_of(tensor.storage().unsafeGetStorageImpl())
                            : std::nullopt;
    if (number && variant_->trace[*number].output) {
      what = {.storage = number, .window = window_of(tensor)};
    }
    return what;
  };
  for (size_t i = 0; i < storages_.size(); ++i) {
    const auto live = storages_[i].impl.lock();
    const bool batch = variant_->trace.storages[i].role == Role::input;
    // What lives on is read where it is; what the host made for the step, as it was.
    made.externals.push_back(batch || !storages_[i].taken ? c10::Storage()
                             : live != nullptr            ? c10::Storage(live)
                                                          : storages_[i].bytes);
  }
  made.externals.resize(variant_->trace.storages.size());
  for (const at::Tensor& tensor : batch_) {
    made.batch.push_back(tensor.defined() ? window_of(tensor) : Window());
    if (tensor.defined()) {
      const auto number = *number_of(tensor.storage().unsafeGetStorageImpl());
      made.batch.back().offset -= base_of(number) / static_cast<int64_t>(tensor.dtype().itemsize());
    }
  }
  for (const auto& weak : parameters_) {
    const auto impl = weak.lock();
    const at::Tensor gradient = impl != nullptr ? at::Tensor(impl).grad() : at::Tensor();
    if (gradient.defined()) {
      Repetition::Gradient found{weak, made_of(gradient)};
      if (found.made.storage) {
        made.gradients.push_back(std::move(found));
      }
    }
  }
  for (const at::Tensor& tensor : results) {
    made.results.push_back(made_of(tensor));
  }
  return made;
}

// An op of the schedule threw: what it wrote is put back.
void StepRun::fail() {
  variant_->runner->undo();
  runner_started_ = false;
  failed_ = true;
}

void StepRun::abandon() noexcept {
  try {
    if (recorder_ == nullptr && variant_ != nullptr && !failed_) {
      diverge("");
    }
  } catch (...) {
    // What cannot be computed has no bytes; whoever asks for them is told.
  }
  listen_.reset();
  others_.reset();
  if (recorder_ != nullptr) {
    recorder_->keep();
  }
  recorder_.reset();
  release();
  for (const auto& weak : parameters_) {
    const auto impl = weak.lock();
    if (impl == nullptr) {
      continue;
    }
    at::Tensor parameter(impl);
    if (parameter.grad().defined() && is_followed(*parameter.grad().storage().unsafeGetStorageImpl())) {
      parameter.mutable_grad().reset();
    }
  }
}

}  // namespace remat::detail
