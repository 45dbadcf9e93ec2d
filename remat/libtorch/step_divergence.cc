// SPDX-License-Identifier: Apache-2.0
// StepRun: leaving the known course. What was followed is run for real, and the rest recorded.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <mutex>

#include "remat/libtorch/step_run.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {

void StepRun::begin_recording() {
  RecorderOptions options{.verb = "step", .follows = true, .host = &context_.options.host};
  options.pool = context_.make_pool();
  if (context_.options.progress) {
    options.progress = [this, pool = options.pool] {
      const auto done = static_cast<int64_t>(recorder_->trace.ops.size());
      const int64_t expected = context_.ops_expected;
      context_.options.progress({.ops_done = done,
                                 .ops_total = expected > 0 ? std::max(done, expected) : 0,
                                 .spilled_bytes = pool == nullptr ? 0 : pool->counts().spilled_bytes});
    };
  }
  recorder_ = std::make_unique<Recorder>(std::move(options));
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

}  // namespace remat::detail
