// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "remat/core/error.h"
#include "remat/core/place.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/reuse_check.h"
#include "remat/libtorch/scope.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

using Values = c10::ArrayRef<c10::IValue>;

Values top(const torch::jit::Stack& stack, size_t count) {
  return Values(stack).slice(stack.size() - count, count);
}

void add_once(std::vector<int32_t>& numbers, int32_t number) {
  if (std::ranges::find(numbers, number) == numbers.end()) {
    numbers.push_back(number);
  }
}

// Ops that want another tensor's sizes and type, not its bytes: nothing need be there.
bool looks_at_shape_only(std::string_view op) {
  return op.starts_with("aten::empty") || op.starts_with("aten::new_") || op.ends_with("_like");
}

bool makes_uninitialised(std::string_view op) {
  return op.starts_with("aten::empty") || op.starts_with("aten::new_empty");
}

// What empty() makes is filled with this while capturing: if anything else is there when an op
// first uses it, the host wrote it through a pointer (torch::tensor({1, 2, 3}) does).
constexpr unsigned char kUnwritten = 0xa5;

bool unwritten(const c10::Storage& storage) {
  const auto* bytes = static_cast<const unsigned char*>(storage.data());
  return std::all_of(bytes, bytes + storage.nbytes(),
                     [](unsigned char byte) { return byte == kUnwritten; });
}

// Indexing makes a shape that depends on values only where an index is a mask.
bool indexes_with_numbers(const c10::OperatorHandle& op, Values arguments) {
  return op.schema().name() == "aten::index" &&
         std::ranges::none_of(arguments[1].toListRef(), [](const c10::IValue& index) {
           return index.isTensor() && index.toTensor().defined() &&
                  (index.toTensor().scalar_type() == at::kBool ||
                   index.toTensor().scalar_type() == at::kByte);
         });
}

// BatchNorm in training changes its running statistics and does not look at them: an effect. In
// evaluation it reads them.
bool is_batch_norm(std::string_view op) { return op == "aten::native_batch_norm"; }
constexpr size_t kBatchNormTraining = 5;

// A digest that tells apart what a kernel could have written by mistake.
uint64_t digest(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  return std::hash<std::string_view>{}(
      {static_cast<const char*>(storage.data()), storage.nbytes()});
}

// Tensors that an op writes, as they are before it. An out= argument that was too small, resize_ and
// set_ give a tensor other bytes than it had; a replay, whose tensors have fixed places, could not.
class WrittenTensors {
 public:
  void add(const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    tensors_.push_back({tensor, storage.unsafeGetStorageImpl(), storage.nbytes()});
  }
  bool in_place() const {
    return std::ranges::all_of(tensors_, [](const Written& each) {
      const c10::Storage& storage = each.tensor.storage();
      return storage.unsafeGetStorageImpl() == each.storage && storage.nbytes() == each.bytes;
    });
  }

 private:
  struct Written {
    at::Tensor tensor;
    const c10::StorageImpl* storage;
    size_t bytes;
  };
  std::vector<Written> tensors_;
};

// Visits the tensors of some arguments or results with their places.
template <typename Visit>
void visit_tensors(Values values, const Visit& visit) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto position = static_cast<int32_t>(i);
    if (values[i].isTensor()) {
      if (values[i].toTensor().defined()) {
        visit(values[i].toTensor(), TensorPlace{position, -1});
      }
    } else if (values[i].isTensorList() || values[i].isOptionalTensorList()) {
      int32_t element = 0;
      for (const c10::IValue& value : values[i].toListRef()) {
        if (value.isTensor() && value.toTensor().defined()) {
          visit(value.toTensor(), TensorPlace{position, element});
        }
        ++element;
      }
    }
  }
}

// The argument without its tensors.
c10::IValue without_tensors(const c10::IValue& value) {
  if (value.isTensor()) {
    return at::Tensor();
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> empty;
    empty.resize(value.toListRef().size());
    return empty;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> empty;
    empty.resize(value.toListRef().size());
    return empty;
  }
  return value;
}

}  // namespace

void Recorder::put_back() {
  for (SeenStorage& storage : storages) {
    if (storage.before.defined()) {
      std::memcpy(storage.external->tensor.storage().mutable_data(), storage.before.data_ptr(),
                  static_cast<size_t>(storage.bytes));
      storage.before = at::Tensor();
    }
  }
  for (auto& [generator, state] : generators_) {
    const std::lock_guard lock(generator.mutex());
    state.restore(generator);
  }
  generators_.clear();
}

int32_t Recorder::add_storage(const at::Tensor& tensor) {
  const auto number = static_cast<int32_t>(storages.size());
  c10::StorageImpl* impl = tensor.storage().unsafeGetStorageImpl();
  storages.push_back({.impl = c10::weak_intrusive_ptr<c10::StorageImpl>(
                          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl)),
                      .bytes = static_cast<int64_t>(impl->nbytes())});
  number_of_.emplace(impl, number);
  return number;
}

void Recorder::add_external(const at::Tensor& tensor, std::string name, Role role,
                            ExternalSource source) {
  require_plain(tensor, "[capture] " + name);
  if (number_of_.contains(tensor.storage().unsafeGetStorageImpl())) {
    return;  // tied weights
  }
  SeenStorage& storage = storages[static_cast<size_t>(add_storage(tensor))];
  storage.name = std::move(name);
  storage.role = role;
  storage.external = std::move(source);
}

// The layer of the op that runs: the scopes around it, in backward those around the forward op
// whose gradient is being computed.
std::string Recorder::layer() {
  if (phase_ == Phase::forward) {
    std::string scope(current_scope());
    // Autograd numbers its nodes as it makes them, just before the op they belong to runs.
    scope_of_node_.try_emplace(at::sequence_number::peek() - 1, scope);
    return scope;
  }
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) {
    return {};
  }
  const auto found = scope_of_node_.find(node->sequence_nr());
  return found != scope_of_node_.end() ? found->second : std::string();
}

int32_t Recorder::storage_of(const at::Tensor& tensor) {
  const auto found = number_of_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != number_of_.end()) {
    return found->second;
  }
  // Made outside of any op: a number that became a tensor, or something the function holds.
  // capture() finds out which by comparing two runs.
  const int32_t number = add_storage(tensor);
  take_for_constant(storages[static_cast<size_t>(number)], number, tensor);
  return number;
}

TensorView Recorder::view_of_external(const at::Tensor& tensor) const {
  const int32_t number = number_of_.at(tensor.storage().unsafeGetStorageImpl());
  return make_view(tensor, static_cast<StorageId>(number));
}

TensorView Recorder::view_of_result(const at::Tensor& tensor, const std::string& what) const {
  require_plain(tensor, "[capture] " + what);
  const auto found = number_of_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == number_of_.end() || storages[static_cast<size_t>(found->second)].external) {
    throw Error(concat("[capture] ", what, " was not made by an op of the step; expected the result "
                       "of ATen ops on the batch and the parameters"));
  }
  return make_view(tensor, static_cast<StorageId>(found->second));
}

bool Recorder::keeps_gradient_of(const at::Tensor& leaf) const {
  const auto found = number_of_.find(leaf.storage().unsafeGetStorageImpl());
  if (found == number_of_.end()) {
    return true;
  }
  const auto& external = storages[static_cast<size_t>(found->second)].external;
  return external && external->kind != ExternalSource::Kind::batch;
}

void Recorder::add_argument(SeenOp& seen, const at::Tensor& tensor, TensorPlace place,
                            bool written) {
  const std::string& name = seen.call.op.schema().name();
  require_plain(tensor, concat("[capture] an argument of ", name, in_layer(seen.scope)));
  const int32_t number = storage_of(tensor);
  SeenStorage& storage = storages[static_cast<size_t>(number)];
  const bool shape_only = !written && looks_at_shape_only(name);
  seen.call.tensors.push_back({place, make_view(tensor, static_cast<StorageId>(number)), shape_only});
  if (shape_only) {
    return;
  }
  if (storage.uninitialised && !unwritten(tensor.storage())) {
    ops[static_cast<size_t>(storage.creator)].dropped = true;
    take_for_constant(storage, number, tensor);
  }
  if (written) {
    storage.uninitialised = false;
    if (storage.external) {
      storage.external->written = true;
      save_before_write(number);
    }
  }
}

void Recorder::take_for_constant(SeenStorage& storage, int32_t number, const at::Tensor& tensor) {
  storage.uninitialised = false;
  storage.name = concat("constant", number);
  storage.role = Role::buffer;
  storage.external = ExternalSource{.kind = ExternalSource::Kind::constant, .tensor = tensor};
}

void Recorder::take_arguments(SeenOp& seen, const torch::jit::Stack& stack) {
  const OpTraits& traits = traits_of(seen.call.op);
  const Values arguments = top(stack, seen.call.op.schema().arguments().size());
  const std::string& name = seen.call.op.schema().name();
  for (const c10::IValue& argument : arguments) {
    seen.call.arguments.push_back(without_tensors(argument));
  }
  const bool evaluates = is_batch_norm(name) && !arguments[kBatchNormTraining].toBool();
  visit_tensors(arguments, [&](const at::Tensor& tensor, TensorPlace place) {
    const bool writes = !evaluates && std::ranges::find(traits.written, place.position) !=
                                          traits.written.end();
    add_argument(seen, tensor, place, writes);
    if (writes) {
      const int32_t number = static_cast<int32_t>(seen.call.tensors.back().view.storage);
      const bool effect = is_batch_norm(name) && storages[static_cast<size_t>(number)].external;
      add_once(effect ? seen.effects : seen.updates, number);
    }
  });
  for (const TensorArgument& argument : seen.call.tensors) {
    const auto number = static_cast<int32_t>(argument.view.storage);
    if (!argument.shape_only && std::ranges::find(seen.updates, number) == seen.updates.end() &&
        std::ranges::find(seen.effects, number) == seen.effects.end()) {
      add_once(seen.reads, number);
    }
  }
}

void Recorder::save_before_write(int32_t number) {
  SeenStorage& storage = storages[static_cast<size_t>(number)];
  if (storage.before.defined()) {
    return;
  }
  const InterceptPause pause;
  const ListenGuard deaf(nullptr);
  const at::AutoDispatchBelowADInplaceOrView below;
  storage.before = at::empty({storage.bytes}, at::TensorOptions(at::kByte));
  std::memcpy(storage.before.data_ptr(), storage.external->tensor.storage().data(),
              static_cast<size_t>(storage.bytes));
}

void Recorder::save_generator(const SeenOp& seen, const torch::jit::Stack& stack) {
  const OpTraits& traits = traits_of(seen.call.op);
  const Values arguments = top(stack, seen.call.op.schema().arguments().size());
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

void Recorder::take_results(SeenOp& seen, const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = seen.call.op.schema();
  visit_tensors(top(stack, schema.returns().size()), [&](const at::Tensor& tensor,
                                                         TensorPlace place) {
    require_plain(tensor, concat("[capture] a result of ", schema.name(), in_layer(seen.scope)));
    if (number_of_.contains(tensor.storage().unsafeGetStorageImpl())) {
      return;
    }
    const int32_t number = add_storage(tensor);
    SeenStorage& storage = storages[static_cast<size_t>(number)];
    storage.creator = static_cast<int32_t>(ops.size());
    storage.uninitialised = makes_uninitialised(schema.name());
    if (storage.uninitialised && storage.bytes > 0) {
      std::memset(tensor.storage().mutable_data(), kUnwritten, static_cast<size_t>(storage.bytes));
    }
    seen.creates.push_back(number);
    seen.created.push_back(make_view(tensor, static_cast<StorageId>(number)));
    seen.call.results.push_back(place);
  });
}

// Which request became which result; the others are scratch, laid out in the op's workspace by
// first fit.
void Recorder::take_requests(SeenOp& seen) {
  struct Scratch {
    void* address;
    int64_t begin, end;
  };
  std::vector<Scratch> live;
  std::unordered_map<void*, int32_t> result_at;  // the last request at an address is the result's
  for (size_t i = 0; i < seen.creates.size(); ++i) {
    const auto impl = storages[static_cast<size_t>(seen.creates[i])].impl.lock();
    if (impl != nullptr && impl->nbytes() > 0) {
      result_at.emplace(impl->mutable_data(), static_cast<int32_t>(i));
    }
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Request& request = requests_[i];
    if (request.frees) {
      std::erase_if(live, [&](const Scratch& each) { return each.address == request.address; });
      continue;
    }
    const bool freed = std::any_of(requests_.begin() + static_cast<ptrdiff_t>(i), requests_.end(),
                                   [&](const Request& later) {
                                     return later.frees && later.address == request.address;
                                   });
    Allocation allocation{.bytes = request.bytes};
    const auto result = result_at.find(request.address);
    if (!freed && result != result_at.end()) {
      allocation.result = result->second;
    } else if (freed) {
      const int64_t bytes = (request.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
      int64_t offset = 0;
      std::ranges::sort(live, {}, &Scratch::begin);
      for (const Scratch& each : live) {
        if (each.begin - offset >= bytes) {
          break;
        }
        offset = std::max(offset, each.end);
      }
      live.push_back({request.address, offset, offset + bytes});
      allocation.workspace_offset = offset;
      seen.workspace_bytes = std::max(seen.workspace_bytes, offset + bytes);
    }  // else it is kept by something like a cache, and not ours to place
    seen.call.allocations.push_back(allocation);
  }
}

void Recorder::allocated(void* address, size_t bytes) {
  requests_.push_back({address, static_cast<int64_t>(bytes), false});
  live_[address] = static_cast<int64_t>(bytes);
  live_bytes_ += static_cast<int64_t>(bytes);
  peak_bytes = std::max(peak_bytes, live_bytes_);
}

void Recorder::freed(void* address) {
  requests_.push_back({address, 0, true});
  const auto found = live_.find(address);
  if (found != live_.end()) {
    live_bytes_ -= found->second;
    live_.erase(found);
  }
}

void Recorder::intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                         torch::jit::Stack& stack) {
  SeenOp seen{.call = {.op = op, .keys = keys, .grad_mode = c10::GradMode::is_enabled()},
              .phase = phase_, .scope = layer()};
  const std::string& name = op.schema().name();
  const Values arguments = top(stack, op.schema().arguments().size());
  if (op.hasTag(at::Tag::data_dependent_output) ||
      (op.hasTag(at::Tag::dynamic_output_shape) && !indexes_with_numbers(op, arguments))) {
    throw Error(concat("[capture] ", name, in_layer(seen.scope),
                       op.hasTag(at::Tag::dynamic_output_shape)
                           ? " makes a tensor whose shape depends on values"
                           : " reads a value on the host",
                       "; a recorded step must compute the same ops for every batch: move it out of "
                       "the loss function or express it with tensors"));
  }
  WrittenTensors written;
  std::vector<std::pair<at::Tensor, uint64_t>> digests;
  const bool changes_view = op.hasTag(at::Tag::inplace_view);  // unsqueeze_: a view like any other
  if (!changes_view) {
    take_arguments(seen, stack);
  }
  seen.random = traits_of(op).random;
  seen.once = !name.starts_with("aten::") && !(seen.updates.empty() && seen.effects.empty());
  if (seen.random) {
    save_generator(seen, stack);
  }
  visit_tensors(arguments, [&](const at::Tensor& tensor, TensorPlace place) {
    if (std::ranges::find(traits_of(op).written, place.position) != traits_of(op).written.end()) {
      written.add(tensor);
    }
    if (checks_.mutation && !changes_view) {
      digests.emplace_back(tensor, digest(tensor));
    }
  });
  const std::vector<c10::IValue> kept =
      checks_.reuse ? arguments.vec() : std::vector<c10::IValue>();
  requests_.clear();
  run_op(op, keys, stack);
  if (!written.in_place()) {
    throw Error(concat("[capture] ", name, in_layer(seen.scope),
                       " gives a tensor another size or storage; expected ops that write into the "
                       "bytes they find, or make a new tensor"));
  }
  if (changes_view) {
    return;
  }
  for (const auto& [tensor, before] : digests) {
    const auto number = number_of_.at(tensor.storage().unsafeGetStorageImpl());
    const bool declared = std::ranges::find(seen.updates, number) != seen.updates.end() ||
                          std::ranges::find(seen.effects, number) != seen.effects.end();
    if (!declared && digest(tensor) != before) {
      throw Error(concat("[capture] ", name, in_layer(seen.scope),
                         " changes an argument that its schema calls read-only; add it to "
                         "op_traits.cc"));
    }
  }
  take_results(seen, stack);
  const bool does_something = !seen.creates.empty() || !seen.updates.empty() ||
                              !seen.effects.empty() || seen.random || seen.once;
  if (does_something) {  // not a view
    take_requests(seen);
    if (checks_.reuse) {
      check_reuse(seen, storages, kept, top(stack, op.schema().returns().size()));
    }
    ops.push_back(std::move(seen));
  }
}

void Recorder::check_nothing_left() const {
  for (const SeenStorage& storage : storages) {
    if (!storage.external && storage.impl.use_count() > 0) {
      const SeenOp& creator = ops[static_cast<size_t>(storage.creator)];
      throw Error(concat("[capture] a result of ", creator.call.op.schema().name(),
                         in_layer(creator.scope), " (", storage.bytes,
                         " bytes) is still held after the step; a recorded step would not renew it: "
                         "keep nothing but the loss"));
    }
  }
}

}  // namespace remat::detail
