// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/runner.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/intercept.h"
#include "remat/libtorch/trace.h"

namespace remat::detail {
namespace {

constexpr int64_t kShortNs = 50'000;  // an op whose time the machine's noise can double

GeneratorState locked_state(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return GeneratorState::of(generator);
}

}  // namespace

Runner::Runner(const Recording& recording, const Schedule& schedule, const Placement& placement,
               std::shared_ptr<Arena> arena, const ExecuteOptions& options)
    : recording_(recording), arena_(std::move(arena)), options_(options) {
  if (arena_->bytes() < placement.arena_bytes) {
    throw Error(concat("[execute] the arena has ", format_bytes(arena_->bytes()),
                       "; the placement needs ", format_bytes(placement.arena_bytes)));
  }
  step_ = prepare(recording, schedule, placement, *arena_);
  tickets_.resize(step_.instance_count, kNoTicket);
  if (step_.channel_bytes > 0) {
    if (options_.channel == nullptr) {
      throw Error("[execute] the schedule offloads values; expected a channel in the options");
    }
    try {
      options_.channel->reserve(step_.channel_bytes);
    } catch (const Error& error) {
      throw MoveFailed(error.what(), std::nullopt);
    }
  }
  calls_of_.resize(recording.graph.ops.size());
  for (size_t i = 0; i < step_.calls.size(); ++i) {
    const PreparedCall& call = step_.calls[i];
    if (!call.move || call.move->reader != nullptr) {
      calls_of_[call.op_index].push_back(i);
    }
  }
  for (const PreparedCall& call : step_.calls) {
    if (call.move && call.move->reader != nullptr) {
      readers_.push_back(&call);
    }
  }
  for (const InstanceId output : step_.outputs) {
    output_offsets_.push_back(placement.instance_offset[index(output)]);
  }
  states_.resize(step_.state_count);
  states_after_.resize(step_.state_count);
  states_before_.resize(step_.generators.size());
  if (step_.state_count > 0) {
    at::Generator& any = step_.generators.front();
    const std::lock_guard lock(any.mutex());
    replayed_ = any.clone();
  }
  for (size_t i = 0; i < recording.externals.size(); ++i) {
    if (recording.externals[i].backed_up) {
      const auto bytes = static_cast<size_t>(recording.graph.storages[i].bytes);
      backups_.push_back({.external = i, .bytes = std::vector<char>(bytes)});
    }
  }
  while (first_lasting_call_ < step_.calls.size() && !lasts(step_.calls[first_lasting_call_])) {
    ++first_lasting_call_;
  }
}

// No transfer may touch memory that others use from now on.
Runner::~Runner() {
  if (options_.channel != nullptr) {
    options_.channel->drain();
  }
}

bool Runner::lasts(const PreparedCall& call) const {
  if (call.move) {
    return false;
  }
  const Op& op = recording_.graph.ops[call.op_index];
  const auto is_lasting = [&](const Value& written) {
    const Storage& storage = recording_.graph.storage(written.storage);
    return storage.external() && storage.bytes > 0 &&
           !recording_.externals[index(written.storage)].backed_up;
  };
  return std::ranges::any_of(op.updates, is_lasting) || std::ranges::any_of(op.effects, is_lasting);
}

OpId Runner::next_op() const {
  return static_cast<OpId>(step_.calls[std::min(next_call_, step_.calls.size() - 1)].op_index);
}

void Runner::start() {
  measured_bytes_.assign(step_.calls.size(), 0);
  supply_.watch(nullptr);
  supply_.start_step(recording_.graph.external_bytes());
  next_call_ = 0;
  waiting_ = nullptr;
  shape_changed_ = false;
  lasting_began_ = false;
  first_difference_.reset();
  bound_.assign(recording_.externals.size(), false);
  for (Backup& each : backups_) {
    each.taken = false;
  }
  for (size_t i = 0; i < step_.generators.size(); ++i) {
    states_before_[i] = locked_state(step_.generators[i]);
  }
}

void Runner::bind(StorageId external, void* address) {
  bound_[index(external)] = true;
  c10::StorageImpl* const storage = step_.externals[index(external)].unsafeGetStorageImpl();
  if (storage->data() != address) {
    storage->set_data_ptr_noswap(c10::DataPtr(address, c10::Device(c10::kCPU)));
  }
}

void Runner::set_argument(OpId op, size_t position, const c10::IValue& value) {
  for (const size_t each : calls_of_[index(op)]) {
    PreparedCall& call = step_.calls[each];
    if (!call.move) {
      call.arguments[position] = value;
    }
  }
}

// What is bound has not been written yet: only ops that run later do.
void Runner::back_up() {
  for (Backup& each : backups_) {
    if (!each.taken && bound_[each.external]) {
      std::memcpy(each.bytes.data(), step_.externals[each.external].data(), each.bytes.size());
      each.taken = true;
    }
  }
}

void Runner::undo() {
  if (options_.channel != nullptr) {
    options_.channel->drain();
  }
  tickets_.assign(tickets_.size(), kNoTicket);
  supply_.end();
  stack_.clear();
  read_.clear();
  for (Backup& each : backups_) {
    if (each.taken) {
      std::memcpy(step_.externals[each.external].mutable_data(), each.bytes.data(),
                  each.bytes.size());
    }
  }
  for (size_t i = 0; i < step_.generators.size(); ++i) {
    const std::lock_guard lock(step_.generators[i].mutex());
    states_before_[i].restore(step_.generators[i]);
  }
}

void Runner::invoke(const PreparedCall& call) {
  supply_.begin(call.requests, call.workspace_bytes);
  call.op->redispatchBoxed(call.keys, &stack_);
  supply_.end();
}

// The first run of an op that will be recomputed leaves the generator's state behind; between
// reading the state and drawing no other thread may draw. A recompute draws from a generator of its
// own where the op takes one.
void Runner::invoke_random(const PreparedCall& call) {
  const bool takes_generator = call.generator_argument >= 0;
  c10::IValue* const argument =
      takes_generator ? &stack_[static_cast<size_t>(call.generator_argument)] : nullptr;
  at::Generator shared = takes_generator && argument->isGenerator()
                             ? argument->toGenerator()
                             : default_generator(c10::Device(c10::kCPU));
  GeneratorState& state = states_[static_cast<size_t>(call.state)];
  if (takes_generator) {
    *argument = replayed_;
    if (call.recompute) {
      state.restore(replayed_);
      invoke(call);
    } else {
      const std::lock_guard lock(shared.mutex());
      state = GeneratorState::of(shared);
      state.restore(replayed_);
      invoke(call);
      GeneratorState::of(replayed_).restore(shared);
    }
    return;
  }
  // The op locks the generator itself, so that others may draw before it does; then the recompute
  // ends in another state than the run.
  if (!call.recompute) {
    state = locked_state(shared);
    invoke(call);
    states_after_[static_cast<size_t>(call.state)] = locked_state(shared);
    return;
  }
  struct PutBack {
    at::Generator& generator;
    GeneratorState state;
    ~PutBack() {
      const std::lock_guard lock(generator.mutex());
      state.restore(generator);
    }
  } const put_back{shared, locked_state(shared)};
  {
    const std::lock_guard lock(shared.mutex());
    state.restore(shared);
  }
  invoke(call);
  if (!(locked_state(shared) == states_after_[static_cast<size_t>(call.state)])) {
    throw Error(concat("[step] ", call.op->schema().name(), " takes no generator, and another "
                               "thread drew from the default one while it ran; expected the same "
                               "numbers again: do not draw on two threads, or pass a generator"));
  }
}

// Where every request was foreseen, results are in their places already. False if one has another
// size than it was recorded with.
bool Runner::check_results(const PreparedCall& call) {
  for (const ExpectedResult& expected : call.results) {
    const c10::Storage& storage = tensor_at(stack_, expected.place).storage();
    if (static_cast<int64_t>(storage.nbytes()) != expected.bytes) {
      return false;
    }
    if (storage.data() != expected.address && expected.bytes > 0) {
      std::memcpy(expected.address, storage.data(), static_cast<size_t>(expected.bytes));
      supply_.add(expected.resident_bytes);
    }
  }
  return true;
}

void Runner::call_once(const PreparedCall& call) {
  stack_.assign(call.arguments.begin(), call.arguments.end());
  if (call.state == kNoState) {
    invoke(call);
  } else {
    invoke_random(call);
  }
}

void Runner::call_timed(const PreparedCall& call, const Timing& timing) {
  Device& device = cpu_device();
  std::vector<int64_t>& samples = timing.samples_ns[call.op_index];
  const auto sample = [&] {
    const int64_t start = device.now_ns();
    call_once(call);
    samples.push_back(device.now_ns() - start);
  };
  sample();
  if (call.repeatable && samples.back() < kShortNs) {
    const Supply counted = supply_;
    for (int i = 0; i < timing.repeats; ++i) {
      sample();
      supply_ = counted;
    }
  }
}

void Runner::compare(const PreparedCall& call) {
  const std::vector<uint64_t>& expected = (*expected_)[call.op_index];
  size_t i = 0;
  for (const ExpectedResult& result : call.results) {
    if (i < expected.size() && expected[i] != 0 &&
        digest(result.address, static_cast<size_t>(result.bytes)) != expected[i]) {
      first_difference_ = static_cast<OpId>(call.op_index);
    }
    ++i;
  }
}

void Runner::run_calls(size_t end) {
  check_readers();
  if (waiting_ != nullptr) {
    free_after(*std::exchange(waiting_, nullptr));
  }
  back_up();
  const InterceptPause pause;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::AutoGradMode put_back(false);
  const ListenGuard listen(&supply_);
  for (; next_call_ < end; ++next_call_) {
    const PreparedCall& call = step_.calls[next_call_];
    if (options_.poll && next_call_ < first_lasting_call_) {
      options_.poll();
    }
    c10::GradMode::set_enabled(call.grad_mode);
    supply_.watch(&measured_bytes_[next_call_]);
    wait(call.waits_for);
    if (call.move) {
      call_move(*call.move);
      if (options_.after_op) {
        options_.after_op();
      }
      free_after(call);
      continue;
    }
    // Its frees may wait for a transfer that fails, while next_call_ still says this call.
    lasting_began_ = lasting_began_ || next_call_ == first_lasting_call_;
    if (timing_ != nullptr) {
      call_timed(call, *timing_);
    } else {
      call_once(call);
    }
    if (!check_results(call)) {
      shape_changed_ = true;
      read_ = stack_;
      return;
    }
    if (call.is_access && deliver_) {
      deliver_(static_cast<OpId>(call.op_index));
    }
    if (call.reads_on_host && next_call_ + 1 == end) {
      read_ = stack_;
    }
    if (expected_ != nullptr && !first_difference_ && !call.recompute) {
      compare(call);
    }
    if (options_.after_op) {
      options_.after_op();
    }
    stack_.clear();
    if (!call.reads_on_host || next_call_ + 1 < end) {
      free_after(call);
    } else {
      waiting_ = &call;  // the host has not looked yet
    }
  }
}

void Runner::free_after(const PreparedCall& call) {
  wait(call.frees_wait_for);
  supply_.add(-call.freed_bytes);
  if (options_.poison) {
    for (const auto& [address, bytes] : call.freed) {
      std::memset(address, 0xff, static_cast<size_t>(bytes));
    }
  }
}

std::optional<Values> Runner::run_until(OpId op) {
  read_.clear();
  run_calls(calls_of_[index(op)].front() + 1);
  return shape_changed_ ? std::nullopt : std::optional(Values(read_));
}

void Runner::run_rest() {
  read_.clear();
  run_calls(step_.calls.size());
  if (shape_changed_) {
    throw Error(concat("[step] ", step_.calls[next_call_].op->schema().name(),
                       " returned another number of bytes than when the step was recorded; "
                       "expected the same shapes from the same ops"));
  }
  wait(step_.outputs_wait_for);
}

void* Runner::address_in(OpId op, StorageId storage) const {
  const PreparedCall& call = step_.calls[calls_of_[index(op)].front()];
  const TapeOp& tape = recording_.tape[index(op)];
  for (const TensorArgument& argument : tape.tensors) {
    if (argument.view.storage == storage) {
      return const_cast<void*>(tensor_at(call.arguments, argument.place).storage().data());
    }
  }
  return nullptr;
}

}  // namespace remat::detail
