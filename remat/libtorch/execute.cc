// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/execute.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <mutex>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/arena.h"
#include "remat/libtorch/intercept.h"
#include "remat/libtorch/prepared_step.h"
#include "remat/libtorch/recording_check.h"
#include "remat/libtorch/rng.h"
#include "remat/libtorch/tensor_view.h"

namespace remat {
namespace {

using detail::Arena;
using detail::ExpectedResult;
using detail::GeneratorState;
using detail::kNoState;
using detail::PreparedCall;
using Kind = ExternalSource::Kind;

constexpr int64_t kShortNs = 50'000;  // an op whose time the machine's noise can double

struct Timing {
  std::vector<std::vector<int64_t>>& samples_ns;  // by op
  int repeats = 0;
};

const at::Tensor& tensor_at(c10::ArrayRef<c10::IValue> values, TensorPlace place) {
  const c10::IValue& value = values[static_cast<size_t>(place.position)];
  return place.element < 0 ? value.toTensor()
                           : value.toListRef()[static_cast<size_t>(place.element)].toTensor();
}

GeneratorState locked_state(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return GeneratorState::of(generator);
}

}  // namespace

class Execution::Implementation {
 public:
  Implementation(const Recording& recording, const Schedule& schedule, const Placement& placement,
                 std::shared_ptr<Arena> arena, const ExecuteOptions& options)
      : recording_(recording), arena_(std::move(arena)), options_(options) {
    if (arena_->bytes() < placement.arena_bytes) {
      throw Error(detail::concat("[execute] the arena has ", format_bytes(arena_->bytes()),
                                 "; the placement needs ", format_bytes(placement.arena_bytes)));
    }
    step_ = detail::prepare(recording, schedule, placement, *arena_);
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
      if (recording.externals[i].kind == Kind::backup) {
        backup_.resize(static_cast<size_t>(recording.graph.storages[i].bytes));
      }
    }
  }

  StepResult run(const Batch& batch, const Timing* timing);
  void undo();
  const StepCounts& counts() const { return supply_.counts; }

 private:
  void bind(const Batch& batch);
  void bind_external(size_t external, const at::Tensor& tensor, const std::string& what);
  void back_up(bool put_back);
  void run_calls(const Timing* timing);
  void call_timed(const PreparedCall& call, const Timing& timing);
  void call_once(const PreparedCall& call);
  void invoke(const PreparedCall& call);
  void invoke_random(const PreparedCall& call);
  void check_results(const PreparedCall& call);
  StepResult results();

  const Recording& recording_;
  std::shared_ptr<Arena> arena_;
  ExecuteOptions options_;

  detail::PreparedStep step_;
  std::vector<int64_t> output_offsets_;  // by output of the graph
  std::vector<char> backup_;
  std::vector<GeneratorState> states_before_;  // the step, by generator
  std::vector<GeneratorState> states_;         // before the ops that are recomputed
  std::vector<GeneratorState> states_after_;   // of those that take no generator
  at::Generator replayed_;
  torch::jit::Stack stack_;
  detail::Supply supply_;
};

void Execution::Implementation::bind_external(size_t external, const at::Tensor& tensor,
                                              const std::string& what) {
  const int64_t bytes = recording_.graph.storages[external].bytes;
  const bool from_start = recording_.externals[external].kind != Kind::batch;
  void* const address =
      from_start ? const_cast<void*>(tensor.storage().data()) : tensor.data_ptr();
  if (from_start && static_cast<int64_t>(tensor.storage().nbytes()) != bytes) {
    throw Error(detail::concat("[step] ", what, recording_.graph.storages[external].name, " has ",
                               tensor.storage().nbytes(), " bytes now and had ", bytes,
                               " when the step was captured; make a new TrainingStep"));
  }
  c10::StorageImpl* const storage = step_.externals[external].unsafeGetStorageImpl();
  if (storage->data() != address) {
    storage->set_data_ptr_noswap(c10::DataPtr(address, c10::Device(c10::kCPU)));
  }
}

void Execution::Implementation::bind(const Batch& batch) {
  detail::check_batch(recording_, batch);
  if (const std::string change = detail::layout_change(recording_); !change.empty()) {
    throw Error(detail::concat("[step] ", change, " the capture; capture the step again"));
  }
  for (size_t i = 0; i < recording_.externals.size(); ++i) {
    const ExternalSource& source = recording_.externals[i];
    const auto position = static_cast<size_t>(source.position);
    switch (source.kind) {
      case Kind::batch: bind_external(i, batch[position], ""); break;
      case Kind::gradient:
        bind_external(i, recording_.parameters[position].grad(), "the gradient ");
        break;
      case Kind::tensor:
      case Kind::constant: bind_external(i, source.tensor, ""); break;
      case Kind::backup: break;  // no op reads it
    }
  }
}

void Execution::Implementation::back_up(bool put_back) {
  char* saved = backup_.data();
  for (size_t i = 0; i < recording_.externals.size(); ++i) {
    if (recording_.externals[i].backed_up()) {
      const auto bytes = static_cast<size_t>(recording_.graph.storages[i].bytes);
      void* const current = step_.externals[i].mutable_data();
      std::memcpy(put_back ? current : saved, put_back ? saved : current, bytes);
      saved += bytes;
    }
  }
}

void Execution::Implementation::invoke(const PreparedCall& call) {
  supply_.begin(call.requests, call.workspace_bytes);
  call.op->redispatchBoxed(call.keys, &stack_);
  supply_.end();
}

// The first run of an op that will be recomputed leaves the generator's state behind; between
// reading the state and drawing no other thread may draw. A recompute draws from a generator of its
// own where the op takes one.
void Execution::Implementation::invoke_random(const PreparedCall& call) {
  const bool takes_generator = call.generator_argument >= 0;
  c10::IValue* const argument =
      takes_generator ? &stack_[static_cast<size_t>(call.generator_argument)] : nullptr;
  at::Generator shared = takes_generator && argument->isGenerator()
                             ? argument->toGenerator()
                             : detail::default_generator(c10::Device(c10::kCPU));
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
    throw Error(detail::concat("[step] ", call.op->schema().name(), " takes no generator, and another "
                               "thread drew from the default one while it ran; expected the same "
                               "numbers again: do not draw on two threads, or pass a generator"));
  }
}

// Where every request was foreseen, results are in their places already.
void Execution::Implementation::check_results(const PreparedCall& call) {
  for (const ExpectedResult& expected : call.results) {
    const c10::Storage& storage = tensor_at(stack_, expected.place).storage();
    if (storage.data() != expected.address && expected.bytes > 0) {
      std::memcpy(expected.address, storage.data(), static_cast<size_t>(expected.bytes));
      supply_.add(expected.resident_bytes);
    }
  }
}

void Execution::Implementation::call_once(const PreparedCall& call) {
  stack_.assign(call.arguments.begin(), call.arguments.end());
  if (call.state == kNoState) {
    invoke(call);
  } else {
    invoke_random(call);
  }
}

void Execution::Implementation::call_timed(const PreparedCall& call, const Timing& timing) {
  detail::Device& device = detail::cpu_device();
  std::vector<int64_t>& samples = timing.samples_ns[call.op_index];
  const auto sample = [&] {
    const int64_t start = device.now_ns();
    call_once(call);
    samples.push_back(device.now_ns() - start);
  };
  sample();
  if (call.repeatable && samples.back() < kShortNs) {
    const detail::Supply counted = supply_;
    for (int i = 0; i < timing.repeats; ++i) {
      sample();
      supply_ = counted;
    }
  }
}

void Execution::Implementation::run_calls(const Timing* timing) {
  const detail::InterceptPause pause;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::AutoGradMode put_back(false);
  const detail::ListenGuard listen(&supply_);
  for (const PreparedCall& call : step_.calls) {
    c10::GradMode::set_enabled(call.grad_mode);
    if (timing != nullptr) {
      call_timed(call, *timing);
    } else {
      call_once(call);
    }
    check_results(call);
    stack_.clear();
    supply_.add(-call.freed_bytes);
    if (options_.poison) {
      for (const auto& [address, bytes] : call.freed) {
        std::memset(address, 0xff, static_cast<size_t>(bytes));
      }
    }
  }
}

StepResult Execution::Implementation::results() {
  std::vector<c10::Storage> lent;
  for (const int64_t offset : output_offsets_) {
    const StorageId storage = recording_.graph.outputs[lent.size()];
    lent.push_back(arena_->lend(offset, recording_.graph.storage(storage).bytes));
  }
  const auto tensor_of = [&](const TensorView& view) {
    const auto& outputs = recording_.graph.outputs;
    const auto found = std::ranges::find(outputs, view.storage) - outputs.begin();
    return detail::make_tensor(view, lent[static_cast<size_t>(found)]);
  };
  StepResult result;
  result.loss = tensor_of(recording_.loss);
  for (const std::optional<TensorView>& gradient : recording_.gradients) {
    result.gradients.push_back(gradient ? tensor_of(*gradient) : at::Tensor());
  }
  return result;
}

StepResult Execution::Implementation::run(const Batch& batch, const Timing* timing) {
  supply_.start_step(recording_.graph.external_bytes());
  supply_.counts.moved_bytes = arena_->reclaim();  // first: a gradient may be among it
  bind(batch);
  back_up(false);
  for (size_t i = 0; i < step_.generators.size(); ++i) {
    states_before_[i] = locked_state(step_.generators[i]);
  }
  try {
    run_calls(timing);
  } catch (...) {
    supply_.end();
    stack_.clear();
    undo();
    throw;
  }
  return results();
}

void Execution::Implementation::undo() {
  back_up(true);
  for (size_t i = 0; i < step_.generators.size(); ++i) {
    const std::lock_guard lock(step_.generators[i].mutex());
    states_before_[i].restore(step_.generators[i]);
  }
}

Execution::Execution(const Recording& recording, const Schedule& schedule,
                     const Placement& placement, std::shared_ptr<detail::Arena> arena,
                     const ExecuteOptions& options)
    : implementation_(std::make_unique<Implementation>(recording, schedule, placement,
                                                       std::move(arena), options)) {}
Execution::~Execution() = default;
Execution::Execution(Execution&&) noexcept = default;
Execution& Execution::operator=(Execution&&) noexcept = default;

StepResult Execution::run(const Batch& batch) { return implementation_->run(batch, nullptr); }

StepResult Execution::run_timed(const Batch& batch,
                                std::vector<std::vector<int64_t>>& samples_ns, int repeats) {
  const Timing timing{samples_ns, repeats};
  return implementation_->run(batch, &timing);
}

void Execution::undo() { implementation_->undo(); }

const StepCounts& Execution::counts() const { return implementation_->counts(); }

std::shared_ptr<detail::Arena> make_arena(int64_t bytes) {
  return std::make_shared<Arena>(detail::cpu_device(), bytes);
}

}  // namespace remat
