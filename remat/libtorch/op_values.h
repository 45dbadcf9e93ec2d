// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cmath>
#include <optional>
#include <vector>

#include "remat/libtorch/tape.h"

// The tensors among an op's arguments and results, with their places.
namespace remat::detail {

using Values = c10::ArrayRef<c10::IValue>;

// The last `count` values of a stack: an op's arguments before it is called, its results after.
inline Values top(const torch::jit::Stack& stack, size_t count) {
  return Values(stack).slice(stack.size() - count, count);
}

// As ==, but a NaN that stays a NaN is no difference.
inline bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble()) {
    return a.toDouble() == b.toDouble() || (std::isnan(a.toDouble()) && std::isnan(b.toDouble()));
  }
  return a.tagKind() == b.tagKind() && a == b;
}

inline bool holds_tensors(const c10::IValue& value) {
  return value.isTensor() || value.isTensorList() || value.isOptionalTensorList();
}

// Calls visit(tensor, place) for every defined tensor.
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

inline const at::Tensor& tensor_at(Values values, TensorPlace place) {
  const c10::IValue& value = values[static_cast<size_t>(place.position)];
  return place.element < 0 ? value.toTensor()
                           : value.toListRef()[static_cast<size_t>(place.element)].toTensor();
}

inline void put_tensor(c10::IValue* values, TensorPlace place, const at::Tensor& tensor) {
  c10::IValue& value = values[static_cast<size_t>(place.position)];
  if (place.element < 0) {
    value = tensor;
  } else {
    value.toList().set(static_cast<size_t>(place.element), tensor);
  }
}

// The value with undefined tensors in place of its tensors.
inline c10::IValue without_tensors(const c10::IValue& value) {
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

// A list must not be shared between two calls that put different tensors into it.
inline c10::IValue own_copy(const c10::IValue& value) {
  return value.isTensorList() || value.isOptionalTensorList() ? c10::IValue(value.toList().copy())
                                                              : value;
}

}  // namespace remat::detail
