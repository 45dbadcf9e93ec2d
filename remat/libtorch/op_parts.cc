// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/op_parts.h"

#include <algorithm>
#include <optional>

#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/op_values.h"

namespace remat::detail {
namespace {

// How many elements the lists among the arguments have: all as many, or none (an optimizer without
// momentum). None if there are no such lists.
std::optional<int32_t> list_length(const SeenOp& op) {
  std::optional<int32_t> length;
  for (const c10::IValue& argument : op.arguments) {
    if (!argument.isList() || argument.toListRef().empty()) {
      continue;
    }
    const auto found = static_cast<int32_t>(argument.toListRef().size());
    if (length.value_or(found) != found) {
      return std::nullopt;
    }
    length = found;
  }
  return length;
}

// Every request for memory is for a result, and every element has one result or none.
bool memory_is_known(const SeenOp& op, int32_t length) {
  if (op.workspace_bytes > 0 || op.allocations.size() != op.creates.size() ||
      (!op.creates.empty() && op.creates.size() != static_cast<size_t>(length))) {
    return false;
  }
  for (size_t i = 0; i < op.creates.size(); ++i) {
    if (op.created[i].place.element != static_cast<int32_t>(i) ||
        op.allocations[i].result != static_cast<int32_t>(i)) {
      return false;
    }
  }
  return true;
}

// Tensors beside the lists are numbers (a learning rate), not lists in another form (`scalars` of
// _foreach_addcdiv_.Tensor).
bool others_are_numbers(const SeenOp& op) {
  return std::ranges::all_of(op.tensors, [](const SeenTensor& each) {
    return each.place.element >= 0 || each.view.sizes.empty();
  });
}

bool can_be_taken_apart(const SeenOp& op, int32_t length) {
  return length > 1 && others_are_numbers(op) && op.kind == CallKind::op && !op.dropped && !op.random && !op.once &&
         op.effects.empty() && traits_of(op.op).by_element && memory_is_known(op, length);
}

// The storages of `whole` that the part's tensors lie on.
std::vector<StorageNumber> used(const std::vector<StorageNumber>& whole, const SeenOp& part) {
  std::vector<StorageNumber> found;
  for (const StorageNumber number : whole) {
    if (std::ranges::any_of(part.tensors, [&](const SeenTensor& each) {
          return each.view.storage == number && !each.shape_only;
        })) {
      found.push_back(number);
    }
  }
  return found;
}

SeenOp part_of(const SeenOp& whole, int32_t element, int32_t length) {
  SeenOp part{.op = whole.op,
              .keys = whole.keys,
              .grad_mode = whole.grad_mode,
              .inference_mode = whole.inference_mode,
              .kind = whole.kind,
              .phase = whole.phase,
              .scope = whole.scope,
              .line = whole.line};
  for (const c10::IValue& argument : whole.arguments) {
    part.arguments.push_back(part_of_argument(argument, element));
  }
  for (SeenTensor tensor : whole.tensors) {
    if (tensor.place.element < 0 || tensor.place.element == element) {
      tensor.place.element = std::min(tensor.place.element, 0);
      part.tensors.push_back(std::move(tensor));
    }
  }
  part.reads = used(whole.reads, part);
  part.updates = used(whole.updates, part);
  if (!whole.creates.empty()) {
    const auto at = static_cast<size_t>(element);
    part.creates = {whole.creates[at]};
    part.created = {whole.created[at]};
    part.created.front().place.element = 0;
    part.allocations = {whole.allocations[at]};
    part.allocations.front().result = 0;
  }
  part.time_ns = whole.time_ns / length;  // until it is measured
  return part;
}

}  // namespace

c10::IValue part_of_argument(const c10::IValue& whole, int32_t element) {
  if (!whole.isList() || whole.toListRef().empty()) {
    return whole;
  }
  c10::List<c10::IValue> list = whole.toList().copy();
  const c10::IValue chosen = list.get(static_cast<size_t>(element));
  list.clear();
  list.push_back(chosen);
  return c10::IValue(std::move(list));
}

PartedTrace take_apart(const Trace& trace) {
  PartedTrace result;
  result.trace.storages = trace.storages;
  result.trace.threads = trace.threads;
  result.trace.eager_peak_bytes = trace.eager_peak_bytes;
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const SeenOp& op = trace.ops[i];
    const int32_t length = list_length(op).value_or(0);
    if (!can_be_taken_apart(op, length)) {
      result.trace.ops.push_back(op);
      result.parts.push_back({.op = i});
      continue;
    }
    for (int32_t element = 0; element < length; ++element) {
      result.trace.ops.push_back(part_of(op, element, length));
      result.parts.push_back({.op = i, .element = element});
    }
  }
  return result;
}

}  // namespace remat::detail
