// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <cstring>

#include "remat/core/error.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/followed_tensor.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/refusals.h"
#include "remat/libtorch/reuse_check.h"
#include "remat/libtorch/scope.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

void add_once(std::vector<StorageNumber>& numbers, StorageNumber number) {
  if (std::ranges::find(numbers, number) == numbers.end()) {
    numbers.push_back(number);
  }
}

bool among(const std::vector<StorageNumber>& numbers, StorageNumber number) {
  return std::ranges::find(numbers, number) != numbers.end();
}

// What the graph's text form takes for a storage's name.
std::string storage_name(std::string name) {
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    c = plain || c == '.' || c == '-' ? c : '_';
  }
  return name;
}

// What empty() makes is filled with this while recording: if anything else is there when an op
// first uses it, the host wrote it through a pointer (torch::tensor({1, 2, 3}) does).
constexpr unsigned char kUnwritten = 0xa5;

bool unwritten(const c10::Storage& storage) {
  const auto* bytes = static_cast<const unsigned char*>(storage.data());
  return std::all_of(bytes, bytes + storage.nbytes(),
                     [](unsigned char byte) { return byte == kUnwritten; });
}

CallKind kind_of(const SeenOp& seen, const Trace& trace, const OpTraits& traits, Values arguments) {
  if (traits.changes_view || traits.metadata_only) {
    return CallKind::metadata;
  }
  // What is written into memory that the host owns is read by the host; so is a generator that the
  // program brought along.
  const bool for_host = std::ranges::any_of(
      seen.updates, [&](StorageNumber number) { return trace[number].borrowed; });
  const bool own_generator = traits.random && traits.generator_argument >= 0 &&
                             arguments[static_cast<size_t>(traits.generator_argument)].isGenerator();
  if (traits.reads_on_host || for_host || own_generator ||
      shape_depends_on_values(seen.op, arguments)) {
    return CallKind::read;
  }
  const bool does_something = !seen.creates.empty() || !seen.updates.empty() ||
                              !seen.effects.empty() || seen.random || seen.once;
  return does_something ? CallKind::op : CallKind::view;
}

}  // namespace

StorageNumber Recorder::add_storage(const at::Tensor& tensor) {
  const auto number = static_cast<StorageNumber>(trace.storages.size());
  const auto impl = owned(tensor.storage().unsafeGetStorageImpl());
  trace.storages.push_back({.impl = c10::weak_intrusive_ptr<c10::StorageImpl>(impl),
                            .bytes = static_cast<int64_t>(impl->nbytes())});
  held.emplace_back();
  digest_.emplace_back();
  before_.emplace_back();
  number_of_[impl.get()] = number;
  return number;
}

void Recorder::add_external(const at::Tensor& tensor, std::string name, Role role,
                            ExternalSource source) {
  require_plain(tensor, concat("[", options_.verb, "] ", name));
  if (number_of_.contains(tensor.storage().unsafeGetStorageImpl())) {
    return;  // tied weights
  }
  const StorageNumber number = add_storage(tensor);
  SeenStorage& storage = trace[number];
  storage.name = std::move(name);
  storage.role = role;
  storage.external = std::move(source);
  held[index(number)] = tensor.storage();
}

void Recorder::add_batch(const Batch& batch, bool slices) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const at::Tensor& tensor = batch[i];
    if (!tensor.defined()) {
      continue;
    }
    add_external(tensor, concat("input", i), Role::input,
                 {.kind = ExternalSource::Kind::batch, .tensor = tensor,
                  .position = static_cast<int32_t>(i)});
    SeenStorage& storage = trace[number_of_.at(tensor.storage().unsafeGetStorageImpl())];
    if (!slices || storage.role != Role::input || tensor.numel() == 0) {
      continue;
    }
    const auto item = static_cast<int64_t>(tensor.dtype().itemsize());
    const int64_t begin = tensor.storage_offset() * item;
    const int64_t end = begin + span_bytes(tensor);
    const bool first = storage.external->position == static_cast<int32_t>(i);
    const int64_t known_end = storage.base_bytes + storage.bytes;
    storage.base_bytes = first ? begin : std::min(storage.base_bytes, begin);
    storage.bytes = (first ? end : std::max(known_end, end)) - storage.base_bytes;
  }
}

// Made outside of any op that was seen: a number that became a tensor, a parameter, a gradient from
// before, the optimizer's state, something the function holds.
void Recorder::meet_external(StorageNumber number, const at::Tensor& tensor) {
  SeenStorage& storage = trace[number];
  storage.uninitialised = false;
  if (options_.follows && made_by_another_thread(tensor.storage().data())) {
    throw Error(concat("[", options_.verb, "] a tensor of sizes ", tensor.sizes(),
                       " was made by another thread while the step runs; expected its ops on one "
                       "thread: pass what other threads make as part of the batch"));
  }
  // Bytes that the host owns may be gone when the step is tried again.
  storage.borrowed = options_.follows && is_borrowed(tensor.storage().data_ptr());
  held[index(number)] = storage.borrowed ? copy_storage(tensor.storage().data(), 0, storage.bytes)
                                         : tensor.storage();
  const c10::StorageImpl* impl = tensor.storage().unsafeGetStorageImpl();
  const bool parameter = options_.follows && tensor.is_leaf() && tensor.requires_grad();
  const bool gradient = std::ranges::find(gradients_, impl) != gradients_.end();
  const char* kind = "constant";
  storage.role = Role::buffer;
  if (known_ != nullptr && index(number) < known_->storages.size() &&
      known_->storages[index(number)].external) {
    storage.role = known_->storages[index(number)].role;
    storage.name = known_->storages[index(number)].name;
    storage.external = ExternalSource{.kind = ExternalSource::Kind::constant, .tensor = tensor};
    return;
  }
  if (parameter) {
    kind = "param";
    storage.role = Role::param;
    note_parameter(tensor);
  } else if (gradient) {
    kind = "grad";
    storage.role = Role::gradient;
  } else if (options_.follows && phase() == Phase::optimizer) {
    kind = "state";
    storage.role = Role::optimizer_state;
  }
  storage.name = external_name(tensor, kind, number);
  storage.external = ExternalSource{.kind = ExternalSource::Kind::constant, .tensor = tensor};
}

// As the host calls it, where that is no name yet and cannot be that of an op ("relu.12").
std::string Recorder::external_name(const at::Tensor& tensor, const char* kind,
                                    StorageNumber number) {
  std::string name;
  if (options_.host != nullptr && options_.host->name_of) {
    name = storage_name(options_.host->name_of(tensor));
  }
  const bool ends_in_number = !name.empty() && name.back() >= '0' && name.back() <= '9';
  if (name.empty() || ends_in_number || !names_.insert(name).second) {
    name += concat(name.empty() ? "" : "_", kind, static_cast<int32_t>(number));
  }
  return name;
}

void Recorder::note_parameter(const at::Tensor& parameter) {
  if (parameter.grad().defined() && parameter.grad().has_storage()) {
    gradients_.push_back(parameter.grad().storage().unsafeGetStorageImpl());
  }
}

StorageNumber Recorder::storage_of(const at::Tensor& tensor) {
  const auto found = number_of_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != number_of_.end()) {
    return found->second;
  }
  const StorageNumber number = add_storage(tensor);
  meet_external(number, tensor);
  return number;
}

SeenView Recorder::view_of_external(const at::Tensor& tensor) const {
  return seen_view(tensor, number_of_.at(tensor.storage().unsafeGetStorageImpl()));
}

SeenView Recorder::view_of_result(const at::Tensor& tensor, const std::string& what) const {
  require_plain(tensor, concat("[", options_.verb, "] ", what));
  const auto found = number_of_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == number_of_.end() || trace[found->second].external) {
    throw Error(concat("[", options_.verb, "] ", what,
                       " was not made by an op of the step; expected the result of ATen ops on the "
                       "batch and the parameters"));
  }
  return seen_view(tensor, found->second);
}

bool Recorder::keeps_gradient_of(const at::Tensor& leaf) const {
  const auto found = number_of_.find(leaf.storage().unsafeGetStorageImpl());
  if (found == number_of_.end()) {
    return true;
  }
  const auto& external = trace[found->second].external;
  return external && external->kind != ExternalSource::Kind::batch;
}

std::optional<StorageNumber> Recorder::number_of(const c10::StorageImpl* impl) const {
  const auto found = number_of_.find(impl);
  return found == number_of_.end() ? std::nullopt : std::optional(found->second);
}

StorageNumber Recorder::add_argument(SeenOp& seen, const at::Tensor& tensor, TensorPlace place,
                                     bool written, bool shape_only) {
  require_plain(tensor, concat("[", options_.verb, "] an argument of ", seen.op.schema().name(),
                               in_layer(seen.scope)));
  StorageNumber number = storage_of(tensor);
  if (!shape_only && trace[number].uninitialised && !unwritten(tensor.storage())) {
    SeenOp& creator = trace.ops[static_cast<size_t>(trace[number].creator)];
    creator.dropped = true;
    creator.kind = CallKind::made;
    meet_external(number, tensor);
  } else if (!shape_only && options_.follows && !among(seen.updates, number) &&
             (trace[number].host_writes_later ||
              (digest_[index(number)] && *digest_[index(number)] != digest_of(number)))) {
    number = continue_after_host_write(number, tensor);
  }
  seen.tensors.push_back({place, seen_view(tensor, number, trace[number].base_bytes), shape_only});
  if (trace[number].role == Role::input && tensor.numel() > 0) {
    const int64_t begin = seen.tensors.back().view.offset * static_cast<int64_t>(tensor.dtype().itemsize());
    uses_more_than_batch_ = uses_more_than_batch_ || begin < 0 ||
                            begin + span_bytes(tensor) > trace[number].bytes;
  }
  if (shape_only) {
    return number;
  }
  SeenStorage& storage = trace[number];
  storage.last_touch = static_cast<int32_t>(trace.ops.size());
  if (options_.follows && !digest_[index(number)] && !storage.uninitialised) {
    digest_[index(number)] = digest_of(number);
  }
  if (written) {
    storage.uninitialised = false;
    if (storage.external) {
      storage.external->written = true;
      save_before_write(number);
    }
  }
  return number;
}

void Recorder::take_arguments(SeenOp& seen, Values arguments) {
  const OpTraits& traits = traits_of(seen.op);
  for (const c10::IValue& argument : arguments) {
    seen.arguments.push_back(without_tensors(argument));
  }
  const bool trains = traits.training_argument >= 0 &&
                      arguments[static_cast<size_t>(traits.training_argument)].toBool();
  const bool writes = !traits.changes_view && (traits.training_argument < 0 || trains);
  visit_tensors(arguments, [&](const at::Tensor& tensor, TensorPlace place) {
    const bool declared = std::ranges::find(traits.written, place.position) != traits.written.end();
    const bool written = writes && declared;
    const bool shape_only =
        traits.changes_view || traits.metadata_only || (!written && traits.shape_only);
    const StorageNumber number = add_argument(seen, tensor, place, written, shape_only);
    if (written) {
      add_once(trains && trace[number].external ? seen.effects : seen.updates, number);
    }
  });
  for (const SeenTensor& argument : seen.tensors) {
    const StorageNumber number = argument.view.storage;
    if (!argument.shape_only && !among(seen.updates, number) && !among(seen.effects, number)) {
      add_once(seen.reads, number);
    }
  }
}

void Recorder::save_before_write(StorageNumber number) {
  at::Tensor& before = before_[index(number)];
  if (before.defined()) {
    return;
  }
  const SeenStorage& storage = trace[number];
  const InterceptPause pause;
  const ListenGuard not_counted(pool());
  const at::AutoDispatchBelowADInplaceOrView below;
  before = at::empty({storage.bytes}, at::TensorOptions(at::kByte));
  std::memcpy(before.mutable_data_ptr(),
              static_cast<const char*>(held[index(number)].data()) + storage.base_bytes,
              static_cast<size_t>(storage.bytes));
}

void Recorder::save_generator(const SeenOp& seen, Values arguments) {
  const OpTraits& traits = traits_of(seen.op);
  const bool given = traits.generator_argument >= 0 &&
                     arguments[static_cast<size_t>(traits.generator_argument)].isGenerator();
  at::Generator generator =
      given ? arguments[static_cast<size_t>(traits.generator_argument)].toGenerator()
            : default_generator(device_of(arguments));
  if (std::ranges::none_of(generators_, [&](const auto& saved) { return saved.first == generator; })) {
    const std::lock_guard lock(generator.mutex());
    const GeneratorState state = GeneratorState::of(generator);
    generators_.emplace_back(generator, state);
  }
}

void Recorder::take_results(SeenOp& seen, Values arguments, Values results) {
  const bool uninitialised = traits_of(seen.op).uninitialised;
  for (const c10::IValue& result : results) {
    seen.outcome.push_back(without_tensors(result));
  }
  visit_tensors(results, [&](const at::Tensor& tensor, TensorPlace place) {
    require_plain(tensor, concat("[", options_.verb, "] a result of ", seen.op.schema().name(),
                                 in_layer(seen.scope)));
    SeenResult result;
    result.place = place;
    const auto known = number_of_.find(tensor.storage().unsafeGetStorageImpl());
    if (known != number_of_.end()) {
      result.view = seen_view(tensor, known->second, trace[known->second].base_bytes);
      visit_tensors(arguments, [&](const at::Tensor& argument, TensorPlace where) {
        if (argument.is_same(tensor)) {
          result.argument = where;
        }
      });
      seen.results.push_back(result);
      return;
    }
    const StorageNumber number = add_storage(tensor);
    SeenStorage& storage = trace[number];
    storage.creator = storage.last_touch = static_cast<int32_t>(trace.ops.size());
    storage.uninitialised = uninitialised;
    if (storage.uninitialised && storage.bytes > 0) {
      std::memset(tensor.storage().mutable_data(), kUnwritten, static_cast<size_t>(storage.bytes));
    }
    result.view = seen_view(tensor, number);
    seen.results.push_back(result);
    seen.creates.push_back(number);
    seen.created.push_back(result);
  });
}

void Recorder::take_digests(const SeenOp& seen) {
  std::vector<uint64_t>& made = digests.emplace_back();
  if (!options_.follows) {
    return;
  }
  const auto take = [&](StorageNumber number) {
    const bool known = !trace[number].uninitialised;
    digest_[index(number)] = known ? std::optional(digest_of(number)) : std::nullopt;
    made.push_back(digest_[index(number)].value_or(0));
  };
  std::ranges::for_each(seen.creates, take);
  std::ranges::for_each(seen.updates, take);
  std::ranges::for_each(seen.effects, take);
}

// A table that numbers make (arange): how long it is follows from them, so it is made anew by every
// run, as if the host had.
void Recorder::take_as_made(SeenOp& seen, Values results) {
  seen.kind = CallKind::made;
  seen.dropped = true;
  for (const SeenResult& result : seen.created) {
    meet_external(result.view.storage, tensor_at(results, result.place));
  }
}

Phase Recorder::phase() {
  if (!options_.follows) {
    return phase_;
  }
  if (torch::autograd::get_current_graph_task_id() >= 0) {
    seen_backward_ = true;
    return Phase::backward;
  }
  return seen_backward_ && !c10::GradMode::is_enabled() ? Phase::optimizer : Phase::forward;
}

// The layer of the op that runs: the scopes around it, or what the host says; in backward those
// around the forward op whose gradient is being computed.
CallSite Recorder::call_site(Phase phase) {
  if (phase != Phase::backward) {
    CallSite site;
    if (options_.host != nullptr && options_.host->call_site) {
      site = options_.host->call_site();
      site.layer = scope_text(site.layer);
    }
    if (!current_scope().empty()) {
      site.layer = current_scope();
    }
    // Autograd numbers its nodes as it makes them, just before the op they belong to runs.
    site_of_node_.try_emplace(at::sequence_number::peek() - 1, site);
    return site;
  }
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) {
    return {};
  }
  const auto found = site_of_node_.find(node->sequence_nr());
  return found != site_of_node_.end() ? found->second : CallSite();
}

void Recorder::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack& stack, const SeenOp* known) {
  SeenOp seen{.op = op, .keys = keys, .grad_mode = c10::GradMode::is_enabled(),
              .inference_mode = c10::InferenceMode::is_enabled()};
  seen.phase = known != nullptr ? known->phase : phase();
  const CallSite site = known != nullptr ? CallSite{known->scope, known->line} : call_site(seen.phase);
  seen.scope = site.layer;
  seen.line = site.line;
  seen_backward_ = seen_backward_ || seen.phase == Phase::backward;
  const OpTraits& traits = traits_of(op);
  const size_t argument_count = op.schema().arguments().size();
  const Values arguments = top(stack, argument_count);
  refuse(options_.verb, options_.follows, op, arguments, seen.scope);
  use_in_pool(arguments);
  take_arguments(seen, arguments);
  seen.random = traits.random;
  seen.once = traits.foreign;
  if (seen.random) {
    save_generator(seen, arguments);
  }
  WrittenTensors written;
  std::vector<std::pair<at::Tensor, uint64_t>> unchanged;
  visit_tensors(arguments, [&](const at::Tensor& tensor, TensorPlace place) {
    if (std::ranges::find(traits.written, place.position) != traits.written.end()) {
      written.add(tensor);
    }
    if (options_.check_mutation && !traits.changes_view) {
      unchanged.emplace_back(tensor, digest(tensor.storage().data(), tensor.storage().nbytes()));
    }
  });
  const std::vector<c10::IValue> kept = arguments.vec();
  check_generators();
  requests_.clear();
  watch_for_host(kept, false);
  const int64_t pool_before_ns = pool_ns();
  const int64_t start_ns = cpu_device().now_ns();
  run_op(op, keys, stack);
  seen.time_ns = cpu_device().now_ns() - start_ns - (pool_ns() - pool_before_ns);
  check_pool();
  note_generators(seen.random);
  written.check_in_place(options_.verb, op, seen.scope);
  for (const auto& [tensor, before] : unchanged) {
    const StorageNumber number = number_of_.at(tensor.storage().unsafeGetStorageImpl());
    const bool declared = among(seen.updates, number) || among(seen.effects, number);
    if (!declared && digest(tensor.storage().data(), tensor.storage().nbytes()) != before) {
      throw Error(concat("[", options_.verb, "] ", op.schema().name(), in_layer(seen.scope),
                         " changes an argument that its schema calls read-only; add it to "
                         "op_traits.cc"));
    }
  }
  const Values results = top(stack, op.schema().returns().size());
  take_results(seen, kept, results);
  seen.kind = kind_of(seen, trace, traits, kept);
  if (seen.kind == CallKind::read && !options_.follows) {
    seen.kind = CallKind::op;  // a generator of its own
  }
  if (options_.follows && traits.shape_from_numbers && seen.tensors.empty()) {
    take_as_made(seen, results);
  }
  seen.once = seen.once || seen.guards();
  if (seen.kind == CallKind::op || seen.kind == CallKind::read) {
    std::vector<const void*> addresses;
    for (const SeenResult& result : seen.created) {
      addresses.push_back(tensor_at(results, result.place).storage().data());
    }
    RequestLayout layout = lay_out(requests_, addresses);
    seen.allocations = std::move(layout.allocations);
    seen.workspace_bytes = layout.workspace_bytes;
    if (options_.check_reuse && seen.kind == CallKind::op) {
      check_reuse(seen, trace, kept, results);
    }
  } else if (seen.once || seen.random) {
    seen.kind = CallKind::op;
  }
  take_digests(seen);
  trace.ops.push_back(std::move(seen));
  watch_for_host(kept, true);
  watch_for_host(results, true);
  if (options_.progress) {
    options_.progress();
  }
}

void Recorder::allocated(void* address, size_t bytes) {
  requests_.push_back({address, static_cast<int64_t>(bytes), false});
  live_[address] = static_cast<int64_t>(bytes);
  live_bytes_ += static_cast<int64_t>(bytes);
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

void Recorder::freed(void* address) {
  requests_.push_back({address, 0, true});
  const auto found = live_.find(address);
  if (found != live_.end()) {
    live_bytes_ -= found->second;
    live_.erase(found);
  }
}

void Recorder::finish() {
  check_generators();
  // The host may have changed what the step wrote, after the last op that used it.
  for (size_t i = 0; options_.follows && i < trace.storages.size(); ++i) {
    const auto number = static_cast<StorageNumber>(i);
    const SeenStorage& storage = trace.storages[i];
    const auto impl = storage.impl.lock();
    if (storage.external && storage.external->written && !storage.borrowed && digest_[i] &&
        impl != nullptr && number_of_.at(impl.get()) == number && *digest_[i] != digest_of(number)) {
      repeatable_ = false;
      host_accessed(number);
    }
  }
  check_pool();
  trace.eager_peak_bytes = peak_bytes_;
  stop_watching();
  for (size_t i = 0; i < trace.storages.size(); ++i) {
    SeenStorage& storage = trace.storages[i];
    if (storage.external) {
      const bool made_by_the_step = storage.creator >= 0 || storage.before_host_write;
      trace.eager_peak_bytes += made_by_the_step ? 0 : storage.bytes;
    } else if (auto impl = storage.impl.lock(); impl != nullptr && !storage.host_writes_later) {
      storage.output = true;
      held[i] = c10::Storage(std::move(impl));
    }
  }
}

void Recorder::drop_new_gradients() {
  for (const SeenStorage& storage : trace.storages) {
    if (!storage.external || storage.role != Role::param || !storage.external->tensor.defined()) {
      continue;
    }
    at::Tensor& gradient = storage.external->tensor.mutable_grad();
    const auto number = gradient.defined() && gradient.has_storage()  // a sparse one has none
                            ? number_of(gradient.storage().unsafeGetStorageImpl())
                            : std::nullopt;
    if (number && !trace[*number].external) {
      gradient.reset();
    }
  }
}

void Recorder::check_nothing_left() const {
  for (const SeenStorage& storage : trace.storages) {
    if (!storage.external && storage.impl.use_count() > 0) {
      const SeenOp& creator = trace.ops[static_cast<size_t>(storage.creator)];
      throw Error(concat("[", options_.verb, "] a result of ", creator.op.schema().name(),
                         in_layer(creator.scope), " (", storage.bytes,
                         " bytes) is still held after the step; a recorded step would not renew it: "
                         "keep nothing but the loss"));
    }
  }
}

}  // namespace remat::detail
