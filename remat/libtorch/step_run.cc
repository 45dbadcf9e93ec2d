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
    diverge(concat(op.schema().name(), site_text(), " ", why));
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
  const std::optional<Values> values = run_until(variant_->made.ops_of[trace_index].front());
  const auto same = [](const SeenOp& call, Values found) {
    return std::ranges::all_of(call.results, [&](const SeenResult& result) {
      return result.argument || same_shape(tensor_at(found, result.place), result.view);
    });
  };
  if (values && same(seen, *values)) {
    answer(seen, stack, *values);
    return true;
  }
  const Values arguments = top(stack, seen.op.schema().arguments().size());
  const Values found = variant_->runner->last_read();
  const bool known = switch_variant([&](Variant& other) {
    if (position_ >= other.program.size()) {
      return false;
    }
    const SeenOp& call = other.trace.ops[other.program[position_]];
    return call.op == seen.op && mismatch(call, seen.op, seen.keys, arguments).empty() &&
           same(call, found);
  });
  if (!known) {
    return false;
  }
  const size_t there = variant_->program[position_];
  SeenOp& call = variant_->trace.ops[there];
  accept(call, there, arguments);
  const std::optional<Values> again = run_until(variant_->made.ops_of[there].front());
  const bool answered = again && same(call, *again);
  if (answered) {
    answer(call, stack, *again);
  }
  return answered;
}

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
  std::optional<Values> values;
  run_schedule([&] { values = variant_->runner->run_until(op); });
  note_generator();
  return values;
}

// Where a move fails, the step is undone and run again, as far as it was, under a plan that does without.
void StepRun::run_schedule(const std::function<void()>& run) {
  bool running = false;
  for (;;) {
    try {
      running = false;
      start_runner();
      running = true;
      return run();
    } catch (const MoveFailed& failed) {
      if (running && !variant_->runner->can_undo()) {
        fail();
        throw_half_done(failed);
      }
      if (running) {
        variant_->runner->undo();
        note_generator();  // where no other plan fits, the run goes on from there without one
      }
      runner_started_ = false;
      for (RunStorage& storage : storages_) {
        storage.bound = false;
      }
      context_.do_without(*variant_, failed);
    } catch (...) {
      if (running) {
        fail();
      }
      throw;
    }
  }
}

// Where the program is: the layer, and the line where the host knows it.
std::string StepRun::site_text() const {
  CallSite site;
  if (context_.options.host.call_site) {
    site = context_.options.host.call_site();
  }
  return at_site(current_scope().empty() ? scope_text(site.layer) : current_scope(), site.line);
}

void StepRun::end() {
  rethrow();
  const auto& collect = context_.options.host.collect;
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
    if (!why.empty() && position_ == variant_->program.size() && collect) {
      collect();
      why = whole(*variant_);
    }
    if (why.empty() && generator_moved()) {
      diverge("the host has moved the generator");
    } else if (!why.empty() && !switch_variant([&](Variant& other) { return whole(other).empty(); })) {
      diverge(why);
    }
  }
  if (recorder_ != nullptr) {
    if (collect) {
      collect();
    }
    listen_.reset();
    others_.reset();
    recorder_->finish();
    recorder_->keep();
    return;
  }
  run_schedule([&] { variant_->runner->run_rest(); });
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
  const OpId op = variant_->runner->next_op();
  failed_op_ = call_text(variant_->trace.ops[variant_->made.part_of[index(op)].op]);
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
    settle();
  }
  recorder_.reset();
  release();
  drop_new_gradients();
}

void StepRun::settle() noexcept {
  try {
    recorder_->settle();
  } catch (...) {
    // What is not settled stays in the pool, which lives for as long as it does.
  }
}

// Gradients that the step began to make and did not end have no bytes.
void StepRun::drop_new_gradients() {
  for (const auto& weak : parameters_) {
    const auto impl = weak.lock();
    if (impl == nullptr) {
      continue;
    }
    at::Tensor parameter(impl);
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined() && gradient.has_storage() &&
        is_followed(*gradient.storage().unsafeGetStorageImpl())) {
      parameter.mutable_grad().reset();
    }
  }
}

std::vector<std::string> StepRun::undo() noexcept {
  std::vector<std::string> lost;
  listen_.reset();
  others_.reset();
  if (recorder_ != nullptr) {
    recorder_->drop_new_gradients();
    recorder_->put_back();
    recorder_->keep();  // as it is now
    settle();
    lost = recorder_->lost();
    recorder_.reset();
  } else if (runner_started_) {
    variant_->runner->undo();
  }
  release();
  drop_new_gradients();
  return lost;
}

}  // namespace remat::detail
