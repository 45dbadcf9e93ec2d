// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/op_traits.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <string_view>
#include <unordered_map>

namespace remat::detail {
namespace {

// The schemas of these ops say nothing of what they write: BatchNorm its running statistics, the
// backward of an RNN layer the workspace of its forward.
bool writes_silently(std::string_view op, std::string_view argument) {
  if (op == "aten::mkldnn_rnn_layer_backward") {
    return argument == "workspace";
  }
  const bool statistics = argument == "running_mean" || argument == "running_var";
  return statistics && (op == "aten::native_batch_norm" || op == "aten::cudnn_batch_norm" ||
                        op == "aten::miopen_batch_norm" || op == "aten::_batch_norm_impl_index" ||
                        op == "aten::batch_norm");
}

// Results of these share storage with their argument although the schema denies it.
bool returns_view_silently(std::string_view op) {
  return op == "aten::_unsafe_view" || op.starts_with("aten::unsafe_split");
}

bool is_generator(const c10::Argument& argument) {
  const auto& type = argument.type();
  return type->kind() == c10::TypeKind::GeneratorType ||
         (type->kind() == c10::TypeKind::OptionalType &&
          type->expectRef<c10::OptionalType>().getElementType()->kind() ==
              c10::TypeKind::GeneratorType);
}

OpTraits read_traits(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OpTraits traits;
  traits.random = op.hasTag(at::Tag::nondeterministic_seeded);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool declared = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (declared || writes_silently(schema.name(), argument.name())) {
      traits.written.push_back(static_cast<int>(i));
    }
    if (is_generator(argument)) {
      traits.generator_argument = static_cast<int>(i);
    }
  }
  traits.is_cast = schema.name() == "aten::_to_copy";
  traits.hides_view = returns_view_silently(schema.name());
  traits.returns_view = traits.hides_view;
  traits.fresh_results = !schema.returns().empty() && !traits.returns_view;
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr) {
      traits.fresh_results = false;
      traits.returns_view = traits.returns_view || !result.alias_info()->isWrite();
    }
  }
  return traits;
}

}  // namespace

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, OpTraits> known;
  const c10::FunctionSchema* key = &op.schema();
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, read_traits(op)).first->second;
}

void for_each_tensor(const c10::IValue& value,
                     const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      for_each_tensor(element, visit);
    }
  }
}

void map_tensors(c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined()) {
      at::Tensor mapped = map(tensor);
      if (!mapped.is_same(tensor)) {
        value = std::move(mapped);
      }
    }
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    c10::List<c10::IValue> elements = value.toList();
    c10::List<c10::IValue> mapped = elements.copy();
    bool changed = false;
    for (size_t i = 0; i < elements.size(); ++i) {
      c10::IValue element = elements.get(i);
      const c10::IValue before = element;
      map_tensors(element, map);
      if (element.isTensor() && !element.toTensor().is_same(before.toTensor())) {
        mapped.set(i, element);
        changed = true;
      }
    }
    if (changed) {
      value = c10::IValue(mapped);
    }
  }
}

c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice() && !found) {
      found = argument.toDevice();
    }
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!found) {
        found = tensor.device();
      }
    });
  }
  return found.value_or(c10::Device(c10::kCPU));
}

}  // namespace remat::detail
