// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/execute.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/arena.h"
#include "remat/libtorch/intercept.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/rng.h"
#include "remat/libtorch/tensor_view.h"

namespace remat {
namespace {

using detail::Arena;
using detail::GeneratorState;
using Kind = ExternalSource::Kind;

constexpr int kNoState = -1;

// A request that the op will make, and where its answer lies.
struct Expected {
  int64_t bytes = 0;
  char* address = nullptr;     // null: LibTorch's own allocator answers
  int64_t resident_bytes = 0;  // what a result adds
  bool scratch = false;        // in the op's workspace, which is counted whole
};

// Where a created storage comes out of the op, and where it must be.
struct ExpectedResult {
  TensorPlace place;
  char* address = nullptr;
  int64_t bytes = 0;
  int64_t resident_bytes = 0;  // beyond what it takes over from a dying input
};

// One run or recompute of the schedule, ready to be called.
struct Call {
  const c10::OperatorHandle* op = nullptr;
  c10::DispatchKeySet keys;
  std::vector<c10::IValue> arguments;
  std::vector<Expected> expected;
  std::vector<ExpectedResult> results;
  size_t op_index = 0;
  int64_t workspace_bytes = 0;  // resident while it runs
  int64_t freed_bytes = 0;      // by the frees that follow
  std::vector<std::pair<char*, int64_t>> freed;
  int state = kNoState;     // of the generator: saved by the run, used by the recompute
  bool recompute = false;
  int generator_argument = -1;
  bool grad_mode = false;
};

// Gives every request of the op that runs its place in the arena, and counts.
class Supply final : public detail::AllocationListener {
 public:
  void start_step(int64_t external_bytes) {
    counts = {};
    resident_bytes_ = external_bytes;
    add(0);
  }
  void begin(const Call& call) {
    call_ = &call;
    next_ = 0;
    workspace_bytes_ = 0;
  }
  void end() {
    call_ = nullptr;
    resident_bytes_ -= workspace_bytes_;
  }
  void add(int64_t bytes) {
    resident_bytes_ += bytes;
    counts.peak_bytes = std::max(counts.peak_bytes, resident_bytes_);
  }

  void* answer(size_t bytes) override {
    if (call_ == nullptr || next_ >= call_->expected.size() ||
        call_->expected[next_].bytes != static_cast<int64_t>(bytes)) {
      return nullptr;
    }
    const Expected& expected = call_->expected[next_++];
    if (expected.scratch && workspace_bytes_ == 0) {
      workspace_bytes_ = call_->workspace_bytes;
      add(workspace_bytes_);
    }
    add(expected.resident_bytes);
    return expected.address;
  }
  void allocated(void*, size_t bytes) override {
    if (call_ != nullptr) {
      ++counts.outside_allocations;
      counts.outside_bytes += static_cast<int64_t>(bytes);
    }
  }
  void freed(void*) override {}

  StepCounts counts;

 private:
  const Call* call_ = nullptr;
  size_t next_ = 0;
  int64_t workspace_bytes_ = 0;  // of the op that runs, once it asked for some
  int64_t resident_bytes_ = 0;
};

const at::Tensor& tensor_at(c10::ArrayRef<c10::IValue> values, TensorPlace place) {
  const c10::IValue& value = values[static_cast<size_t>(place.position)];
  return place.element < 0 ? value.toTensor()
                           : value.toListRef()[static_cast<size_t>(place.element)].toTensor();
}

void put_tensor(std::vector<c10::IValue>& arguments, TensorPlace place, const at::Tensor& tensor) {
  c10::IValue& value = arguments[static_cast<size_t>(place.position)];
  if (place.element < 0) {
    value = tensor;
  } else {
    value.toList().set(static_cast<size_t>(place.element), tensor);
  }
}

// A list argument of one call must not be shared with another call's.
c10::IValue own_copy(const c10::IValue& value) {
  return value.isTensorList() || value.isOptionalTensorList() ? c10::IValue(value.toList().copy())
                                                              : value;
}

bool looks_like(const at::Tensor& tensor, const TensorView& view) {
  return tensor.sizes() == view.sizes && tensor.strides() == view.strides &&
         tensor.storage_offset() == view.offset && tensor.scalar_type() == view.dtype;
}

std::string shape_text(const TensorView& view) {
  return detail::concat(c10::IntArrayRef(view.sizes), " of ", c10::toString(view.dtype),
                        " with strides ", c10::IntArrayRef(view.strides));
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
      : recording_(recording), placement_(placement), arena_(std::move(arena)), options_(options) {
    if (arena_->bytes() < placement.arena_bytes) {
      throw Error(detail::concat("[execute] the arena has ", format_bytes(arena_->bytes()),
                                 "; the placement needs ", format_bytes(placement.arena_bytes)));
    }
    prepare(schedule);
  }

  StepResult run(const Batch& batch, std::vector<int64_t>* op_ns);
  void undo();
  const StepCounts& counts() const { return supply_.counts; }

 private:
  void prepare(const Schedule& schedule);
  void prepare_externals();
  void prepare_call(const Schedule& schedule, const Step& step, std::vector<int>& state_of_op);
  c10::Storage storage_of(const Schedule& schedule, InstanceId instance);
  char* address_of(InstanceId instance) const {
    return arena_->at(placement_.instance_offset[index(instance)]);
  }

  void bind(const Batch& batch);
  void bind_external(size_t external, const at::Tensor& tensor, const std::string& what);
  void back_up(bool put_back);
  void run_calls(std::vector<int64_t>* op_ns);
  void invoke(const Call& call);
  void invoke_random(const Call& call);
  void check_results(const Call& call);
  StepResult results();

  const Recording& recording_;
  Placement placement_;
  std::shared_ptr<Arena> arena_;
  ExecuteOptions options_;

  std::vector<c10::Storage> externals_;
  std::vector<c10::Storage> instances_;  // by instance; made when first asked for
  std::vector<Call> calls_;
  std::vector<InstanceId> outputs_;  // by output of the graph
  std::vector<char> backup_;
  std::vector<GeneratorState> states_;        // before the ops that are recomputed
  std::vector<GeneratorState> states_after_;  // of those that take no generator
  std::vector<std::pair<at::Generator, std::optional<GeneratorState>>> generators_;
  at::Generator replayed_;
  torch::jit::Stack stack_;
  Supply supply_;
};

void Execution::Implementation::prepare_externals() {
  for (size_t i = 0; i < recording_.externals.size(); ++i) {
    const int64_t bytes = recording_.graph.storages[i].bytes;
    const ExternalSource& source = recording_.externals[i];
    if (source.kind == Kind::backup) {
      backup_.resize(static_cast<size_t>(bytes));
    }
    externals_.push_back(detail::borrow(nullptr, bytes));
    if (source.tensor.defined()) {
      bind_external(i, source.tensor, "");
    }
  }
}

c10::Storage Execution::Implementation::storage_of(const Schedule& schedule, InstanceId instance) {
  const StorageId storage = schedule.instances[index(instance)].storage;
  if (recording_.graph.storage(storage).external()) {
    return externals_[index(storage)];
  }
  c10::Storage& made = instances_[index(instance)];
  if (!made) {
    made = detail::borrow(address_of(instance), recording_.graph.storage(storage).bytes);
  }
  return made;
}

void Execution::Implementation::prepare(const Schedule& schedule) {
  prepare_externals();
  instances_.resize(schedule.instances.size());
  std::vector<int> state_of_op(recording_.graph.ops.size(), kNoState);
  for (const Step& step : schedule.steps) {  // the run must know that it will be recomputed
    if (step.kind == StepKind::recompute && recording_.graph.op(step.op).random) {
      int& state = state_of_op[index(step.op)];
      if (state == kNoState) {
        state = static_cast<int>(states_.size());
        states_.emplace_back();
        states_after_.emplace_back();
      }
    }
  }
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::free) {
      prepare_call(schedule, step, state_of_op);
      continue;
    }
    const Instance& instance = schedule.instances[index(step.instance)];
    const int64_t bytes = recording_.graph.storage(instance.storage).bytes;
    calls_.back().freed_bytes += bytes;
    calls_.back().freed.emplace_back(address_of(step.instance), bytes);
  }
  // Of each storage the copy in which its last version was made last: an earlier version may have
  // been made again after it.
  const Graph& graph = recording_.graph;
  std::vector<InstanceId> last(graph.storages.size(), kNoInstance);
  const auto made = [&](InstanceId instance, int32_t version) {
    const StorageId storage = schedule.instances[index(instance)].storage;
    if (version == graph.last_version(storage)) {
      last[index(storage)] = instance;
    }
  };
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::free) {
      const auto updates = schedule.updates(graph, step);
      for (size_t i = 0; i < updates.size(); ++i) {
        made(updates[i], graph.op(step.op).updates[i].version + 1);
      }
      for (const InstanceId each : schedule.creates(graph, step)) {
        made(each, 0);
      }
    }
  }
  for (const StorageId output : graph.outputs) {
    outputs_.push_back(last[index(output)]);
  }
}

void Execution::Implementation::prepare_call(const Schedule& schedule, const Step& step,
                                             std::vector<int>& state_of_op) {
  const Graph& graph = recording_.graph;
  const TapeOp& tape = recording_.tape[index(step.op)];
  const Op& op = graph.op(step.op);
  Call call;
  call.op = &tape.op;
  call.keys = detail::keys_below_intercept(tape.keys);
  call.grad_mode = tape.grad_mode;
  call.op_index = index(step.op);
  call.recompute = step.kind == StepKind::recompute;
  call.state = state_of_op[call.op_index];
  call.generator_argument = detail::traits_of(tape.op).generator_argument;
  call.workspace_bytes = op.workspace_bytes;
  for (const c10::IValue& argument : tape.arguments) {
    call.arguments.push_back(own_copy(argument));
  }
  const auto reads = schedule.reads(graph, step);
  const auto updates = schedule.updates(graph, step);
  const auto creates = schedule.creates(graph, step);
  const auto instance_of = [&](StorageId storage) {
    for (size_t i = 0; i < op.reads.size(); ++i) {
      if (op.reads[i].storage == storage) {
        return reads[i];
      }
    }
    for (size_t i = 0; i < op.updates.size(); ++i) {
      if (op.updates[i].storage == storage) {
        return updates[i];
      }
    }
    REMAT_ASSERT(graph.storage(storage).external());
    return static_cast<InstanceId>(index(storage));  // an effect
  };
  for (const TensorArgument& argument : tape.tensors) {
    const StorageId storage = argument.view.storage;
    const bool effect = std::ranges::any_of(
        op.effects, [&](const Value& value) { return value.storage == storage; });
    if (effect && call.recompute) {
      continue;  // stays undefined: BatchNorm without running statistics computes the same
    }
    put_tensor(call.arguments, argument.place,
               detail::make_tensor(argument.view,
                                   argument.shape_only
                                       ? detail::borrow(nullptr, graph.storage(storage).bytes)
                                       : storage_of(schedule, instance_of(storage))));
  }
  for (size_t i = 0; i < creates.size(); ++i) {
    const Instance& instance = schedule.instances[index(creates[i])];
    const int64_t bytes = graph.storage(instance.storage).bytes;
    int64_t taken_over = 0;
    if (instance.in_place_of != kNoInstance) {
      const StorageId source = schedule.instances[index(instance.in_place_of)].storage;
      taken_over = graph.storage(source).bytes;
    }
    call.results.push_back({tape.results[i], address_of(creates[i]), bytes, bytes - taken_over});
  }
  const auto step_index = static_cast<size_t>(&step - schedule.steps.data());
  for (const Allocation& allocation : tape.allocations) {
    Expected expected{.bytes = allocation.bytes};
    if (allocation.result >= 0) {
      const ExpectedResult& result = call.results[static_cast<size_t>(allocation.result)];
      expected.address = result.address;
      expected.resident_bytes = result.resident_bytes;
    } else if (allocation.workspace_offset >= 0) {
      expected.scratch = true;
      expected.address =
          arena_->at(placement_.workspace_offset[step_index] + allocation.workspace_offset);
    }
    call.expected.push_back(expected);
  }
  if (op.random) {
    const bool given = call.generator_argument >= 0 &&
                       call.arguments[static_cast<size_t>(call.generator_argument)].isGenerator();
    at::Generator generator =
        given ? call.arguments[static_cast<size_t>(call.generator_argument)].toGenerator()
              : detail::default_generator(c10::Device(c10::kCPU));
    if (std::ranges::none_of(generators_, [&](const auto& each) { return each.first == generator; })) {
      generators_.emplace_back(generator, std::nullopt);
    }
    if (!replayed_.defined()) {
      const std::lock_guard lock(generator.mutex());
      replayed_ = generator.clone();
    }
  }
  calls_.push_back(std::move(call));
}

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
  c10::StorageImpl* const storage = externals_[external].unsafeGetStorageImpl();
  if (storage->data() != address) {
    storage->set_data_ptr_noswap(c10::DataPtr(address, c10::Device(c10::kCPU)));
  }
}

void detail::check_batch(const Recording& recording, const Batch& batch) {
  if (batch.size() != recording.batch.size()) {
    throw Error(concat("[step] the batch has ", batch.size(), " tensors; expected ",
                       recording.batch.size()));
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    const std::string what = concat("[step] tensor ", i, " of the batch");
    if (!batch[i].defined()) {
      throw Error(what + " is undefined; expected data");
    }
    require_plain(batch[i], what);
    TensorView view = make_view(batch[i], recording.batch[i].storage);
    view.offset = 0;
    if (view != recording.batch[i]) {
      throw Error(concat(what, " is ", shape_text(view), "; this step was captured with ",
                         shape_text(recording.batch[i])));
    }
  }
}

std::string detail::layout_change(const Recording& recording) {
  // Tensors that shared a storage must still share one: a graph knows storages only.
  std::vector<const c10::StorageImpl*> storages(recording.externals.size(), nullptr);
  const auto same = [&](const at::Tensor& tensor, const TensorView& view) {
    if (!tensor.defined() || !looks_like(tensor, view)) {
      return false;
    }
    const c10::StorageImpl*& known = storages[index(view.storage)];
    const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    known = known == nullptr ? storage : known;
    return known == storage &&
           static_cast<int64_t>(storage->nbytes()) == recording.graph.storage(view.storage).bytes;
  };
  for (size_t i = 0; i < recording.parameters.size(); ++i) {
    if (!same(recording.parameters[i], recording.parameter_views[i])) {
      return concat("parameter ", i, " has another shape, type or layout in memory than before");
    }
    const std::optional<TensorView>& gradient = recording.gradients_before[i];
    if (gradient && !same(recording.parameters[i].grad(), *gradient)) {
      return concat("the gradient of parameter ", i, " has another layout in memory than before");
    }
  }
  return {};
}

void Execution::Implementation::bind(const Batch& batch) {
  detail::check_batch(recording_, batch);
  if (const std::string change = detail::layout_change(recording_); !change.empty()) {
    throw Error(detail::concat("[step] ", change, " the capture; capture the step again"));
  }
  for (size_t i = 0; i < recording_.externals.size(); ++i) {
    const ExternalSource& source = recording_.externals[i];
    const auto position = static_cast<size_t>(source.position);
    if (source.kind == Kind::batch) {
      bind_external(i, batch[position], "");
    } else if (source.kind == Kind::gradient) {
      bind_external(i, recording_.parameters[position].grad(), "the gradient ");
    } else if (source.kind == Kind::tensor) {
      bind_external(i, source.tensor, "");
    }
  }
}

void Execution::Implementation::back_up(bool put_back) {
  char* saved = backup_.data();
  for (size_t i = 0; i < recording_.externals.size(); ++i) {
    if (recording_.externals[i].backed_up()) {
      const auto bytes = static_cast<size_t>(recording_.graph.storages[i].bytes);
      void* const current = externals_[i].mutable_data();
      std::memcpy(put_back ? current : saved, put_back ? saved : current, bytes);
      saved += bytes;
    }
  }
}

void Execution::Implementation::invoke(const Call& call) {
  supply_.begin(call);
  call.op->redispatchBoxed(call.keys, &stack_);
  supply_.end();
}

// The first run of an op that will be recomputed leaves the generator's state behind; between
// reading the state and drawing no other thread may draw. A recompute draws from a generator of its
// own where the op takes one.
void Execution::Implementation::invoke_random(const Call& call) {
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
void Execution::Implementation::check_results(const Call& call) {
  for (const ExpectedResult& expected : call.results) {
    const c10::Storage& storage = tensor_at(stack_, expected.place).storage();
    if (storage.data() != expected.address && expected.bytes > 0) {
      std::memcpy(expected.address, storage.data(), static_cast<size_t>(expected.bytes));
      supply_.add(expected.resident_bytes);
    }
  }
}

void Execution::Implementation::run_calls(std::vector<int64_t>* op_ns) {
  const detail::InterceptPause pause;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::AutoGradMode put_back(false);
  const detail::ListenGuard listen(&supply_);
  detail::Device& device = detail::cpu_device();
  for (const Call& call : calls_) {
    stack_.assign(call.arguments.begin(), call.arguments.end());
    c10::GradMode::set_enabled(call.grad_mode);
    const int64_t start = op_ns != nullptr ? device.now_ns() : 0;
    if (call.state == kNoState) {
      invoke(call);
    } else {
      invoke_random(call);
    }
    if (op_ns != nullptr) {
      (*op_ns)[call.op_index] += device.now_ns() - start;
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
  for (const InstanceId output : outputs_) {
    const StorageId storage = recording_.graph.outputs[lent.size()];
    lent.push_back(arena_->lend(placement_.instance_offset[index(output)],
                                recording_.graph.storage(storage).bytes));
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

StepResult Execution::Implementation::run(const Batch& batch, std::vector<int64_t>* op_ns) {
  supply_.start_step(recording_.graph.external_bytes());
  supply_.counts.moved_bytes = arena_->reclaim();  // first: a gradient may be among it
  bind(batch);
  back_up(false);
  for (auto& [generator, state] : generators_) {
    const std::lock_guard lock(generator.mutex());
    state = GeneratorState::of(generator);
  }
  try {
    run_calls(op_ns);
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
  for (auto& [generator, state] : generators_) {
    const std::lock_guard lock(generator.mutex());
    state->restore(generator);
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

StepResult Execution::run_timed(const Batch& batch, std::vector<int64_t>& op_ns) {
  return implementation_->run(batch, &op_ns);
}

void Execution::undo() { implementation_->undo(); }

const StepCounts& Execution::counts() const { return implementation_->counts(); }

std::shared_ptr<detail::Arena> make_arena(int64_t bytes) {
  return std::make_shared<Arena>(detail::cpu_device(), bytes);
}

}  // namespace remat
