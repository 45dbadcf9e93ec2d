// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/tape.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "bench/generator/cost.h"
#include "remat/core/error.h"

namespace remat::bench {
namespace {

using detail::concat;

// Kernels that give the same bits when their result is written over an input of the same size that
// dies there. Each was tried on LibTorch; others (sigmoid, tanh, sqrt, ...) were not and stay out.
constexpr std::string_view kMayWriteOverInput =
    " mul add div relu where masked_fill gelu silu threshold_backward gelu_backward silu_backward "
    "tanh_backward _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data "
    "native_layer_norm native_batch_norm ";

bool may_write_over_input(std::string_view kind) {
  return kMayWriteOverInput.find(concat(" ", kind, " ")) != std::string_view::npos;
}

Work work_of(const Call& call) {
  Work work{.flops = call.flops};
  for (const Tensor& tensor : call.reads) work.moved_bytes += tensor.bytes();
  for (const Tensor& tensor : call.effects) work.moved_bytes += 2 * tensor.bytes();
  for (const Tensor& tensor : call.updates) {
    work.moved_bytes += 2 * tensor.bytes();
    if (call.random) work.random_numbers += tensor.elements();
  }
  for (const Creation& creation : call.creates) {
    work.moved_bytes +=
        Tensor{.shape = creation.shape, .element_bytes = creation.element_bytes}.bytes();
  }
  if (call.moved_bytes) work.moved_bytes = *call.moved_bytes;
  return work;
}

// `a12`, `a12.1`, ... : the results of op 12, if that is a forward op.
std::string storage_name(Phase phase, int64_t op, size_t result) {
  constexpr std::array<char, 3> kLetters = {'a', 'g', 't'};
  std::string name = concat(kLetters[static_cast<size_t>(phase)], op);
  return result == 0 ? name : concat(name, ".", result);
}

}  // namespace

int64_t Tensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Tensor Tensor::viewed(Shape as) const {
  Tensor view = *this;
  view.shape = std::move(as);
  if (view.elements() != elements()) throw std::logic_error("view of another size: " + storage);
  return view;
}

Creation floats(Shape shape) { return {std::move(shape), 4}; }
Creation indices(Shape shape) { return {std::move(shape), 8}; }
Creation bools(Shape shape) { return {std::move(shape), 1}; }

Tape::Scope::Scope(Tape& tape, std::string_view name) : tape_(tape), outer_(tape.scope_) {
  tape.scope_ = tape.scoped(name);
}

std::string Tape::scoped(std::string_view name) const {
  return scope_.empty() ? std::string(name) : concat(scope_, ".", name);
}

int32_t Tape::new_variable() {
  gradients_.emplace_back();
  return static_cast<int32_t>(gradients_.size()) - 1;
}

Tensor Tape::external(std::string name, Shape shape, int64_t element_bytes, Role role) {
  Tensor tensor{.storage = name, .shape = std::move(shape), .element_bytes = element_bytes};
  builder_.external(name, tensor.bytes(), role);
  storages_.emplace(std::move(name), StorageState{.bytes = tensor.bytes(), .external = true});
  return tensor;
}

Tensor Tape::input(std::string_view name, Shape shape, int64_t element_bytes) {
  return external(scoped(name), std::move(shape), element_bytes, Role::input);
}

Tensor Tape::param(std::string_view name, Shape shape) {
  Tensor tensor = external(scoped(name), std::move(shape), 4, Role::param);
  tensor.variable = new_variable();
  params_.push_back(tensor);
  return tensor;
}

Tensor Tape::buffer(std::string_view name, Shape shape, int64_t element_bytes) {
  return external(scoped(name), std::move(shape), element_bytes, Role::buffer);
}

Tensor Tape::optimizer_state(const Tensor& param, std::string_view name) {
  return external(concat(param.storage, ".", name), param.shape, param.element_bytes,
                  Role::optimizer_state);
}

const Tensor& Tape::checked(const Tensor& tensor) const {
  const StorageState& state = storages_.at(tensor.storage);
  if (state.version != tensor.version) {
    throw std::logic_error(concat(scope_, " uses ", tensor.storage, " at version ", tensor.version,
                                  ", which was overwritten by version ", state.version));
  }
  return tensor;
}

std::vector<OpSpec::ReusePair> Tape::reuse_of(const OpSpec& op,
                                              const std::vector<Tensor>& reads) const {
  const OpSpec::Creation& result = op.creates.at(0);
  std::vector<OpSpec::ReusePair> pairs;
  for (const Tensor& source : reads) {
    const StorageState& state = storages_.at(source.storage);
    if (state.external || !source.dense || state.bytes != result.bytes) continue;
    pairs.push_back({result.storage, source.storage});
  }
  return pairs;
}

std::vector<Tensor> Tape::run(const Call& call) {
  const bool qualified = call.kind.find("::") != std::string::npos;
  const std::string base = qualified ? call.kind.substr(call.kind.find("::") + 2) : call.kind;
  const int64_t number = op_count_++;
  OpSpec op{.name = concat(base, "_", number),
            .phase = phase_,
            .kind = qualified ? call.kind : "aten::" + call.kind,
            .time_ns = time_ns(work_of(call)),
            .workspace_bytes = call.workspace_bytes,
            .random = call.random,
            .once = call.once,
            .scope = scope_};
  std::vector<Tensor> results;
  for (const Tensor& tensor : call.updates) {
    op.updates.push_back(checked(tensor).storage);
    results.push_back(tensor);
    ++results.back().version;
  }
  for (const Tensor& tensor : call.effects) op.effects.push_back(tensor.storage);
  // Two views of a storage are one read.
  std::vector<Tensor> reads;
  for (const Tensor& tensor : call.reads) {
    const auto same = [&](const Tensor& other) { return other.storage == checked(tensor).storage; };
    if (std::any_of(reads.begin(), reads.end(), same)) continue;
    if (std::any_of(call.updates.begin(), call.updates.end(), same)) continue;
    reads.push_back(tensor);
    op.reads.push_back(tensor.storage);
  }
  for (const Creation& creation : call.creates) {
    const std::string storage = storage_name(phase_, number, op.creates.size());
    const Tensor created{
        .storage = storage, .shape = creation.shape, .element_bytes = creation.element_bytes};
    op.creates.push_back({storage, created.bytes()});
    storages_.emplace(storage, StorageState{.bytes = created.bytes()});
    results.push_back(created);
  }
  if (may_write_over_input(call.kind)) op.reuse = reuse_of(op, reads);
  for (const std::string& storage : op.updates) ++storages_.at(storage).version;
  for (const std::string& storage : op.effects) ++storages_.at(storage).version;
  builder_.op(std::move(op));
  return results;
}

}  // namespace remat::bench
