// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/tape_difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "remat/core/error.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

constexpr const char* kAdvice =
    "; a recorded step repeats the first: compute what changes with tensors of the batch, or keep "
    "it outside of the loss function";

std::string op_text(const SeenOp& op, size_t number) {
  return concat("op ", number, ", ", op.call.op.schema().name(), in_layer(op.scope));
}

bool holds_tensors(const c10::IValue& value) {
  return value.isTensor() || value.isTensorList() || value.isOptionalTensorList();
}

// As ==, but a NaN that stays a NaN is no difference.
bool same_constant(const c10::IValue& x, const c10::IValue& y) {
  return x == y || (x.isDouble() && y.isDouble() && std::isnan(x.toDouble()) &&
                    std::isnan(y.toDouble()));
}

std::string sizes_text(const TensorView& view) {
  return concat(c10::IntArrayRef(view.sizes), " of ", c10::toString(view.dtype));
}

std::string difference_of(const SeenOp& a, const SeenOp& b, size_t number) {
  const c10::FunctionSchema& schema = a.call.op.schema();
  if (schema.operator_name() != b.call.op.schema().operator_name() || a.phase != b.phase) {
    return concat(op_text(a, number), ", was ", op_text(b, number), " in another call");
  }
  for (size_t i = 0; i < a.call.arguments.size(); ++i) {
    const c10::IValue& x = a.call.arguments[i];
    const c10::IValue& y = b.call.arguments[i];
    if (holds_tensors(x) != holds_tensors(y) || (!holds_tensors(x) && !same_constant(x, y))) {
      return concat(op_text(a, number), ": argument '", schema.arguments()[i].name(), "' was ", x,
                    " in one call and ", y, " in another");
    }
  }
  if (a.call.tensors.size() != b.call.tensors.size()) {
    return concat(op_text(a, number), ": got ", a.call.tensors.size(), " tensors in one call and ",
                  b.call.tensors.size(), " in another");
  }
  for (size_t i = 0; i < a.call.tensors.size(); ++i) {
    const TensorArgument& x = a.call.tensors[i];
    const TensorArgument& y = b.call.tensors[i];
    if (x != y) {
      const auto& argument = schema.arguments()[static_cast<size_t>(x.place.position)].name();
      return concat(op_text(a, number), ": tensor argument '", argument, "' was ",
                    sizes_text(x.view), " in one call and ", sizes_text(y.view),
                    " in another, or another tensor");
    }
  }
  return {};
}

std::string value_text(const at::Tensor& tensor, const char* otherwise) {
  return tensor.numel() == 1 && !tensor.is_complex() ? concat(tensor.item().toDouble()) : otherwise;
}

const SeenOp& user_of(const Recorder& recorder, size_t storage, size_t& number) {
  const auto among = [storage](const std::vector<int32_t>& storages) {
    return std::ranges::find(storages, static_cast<int32_t>(storage)) != storages.end();
  };
  const auto op = std::ranges::find_if(recorder.ops, [&](const SeenOp& each) {
    return among(each.reads) || among(each.updates);
  });
  number = static_cast<size_t>(op - recorder.ops.begin());
  return op != recorder.ops.end() ? *op : recorder.ops.back();
}

std::string difference_of_constants(const Recorder& first, const Recorder& second) {
  if (first.storages.size() != second.storages.size()) {
    return concat("its end: ", first.storages.size(), " storages were used in one call and ",
                  second.storages.size(), " in another");
  }
  for (size_t i = 0; i < first.storages.size(); ++i) {
    const auto& x = first.storages[i].external;
    const auto& y = second.storages[i].external;
    if (x.has_value() != y.has_value() || first.storages[i].bytes != second.storages[i].bytes) {
      return concat("storage ", i, " had ", first.storages[i].bytes, " bytes in one call and ",
                    second.storages[i].bytes, " in another");
    }
    if (!x || x->kind != ExternalSource::Kind::constant) {
      continue;
    }
    const bool same_storage = x->tensor.storage().is_alias_of(y->tensor.storage());
    size_t number = 0;
    if (!same_storage && (x->written || y->written)) {
      const SeenOp& op = user_of(first, i, number);
      return concat(op_text(op, number), ": changes a tensor that was made on the host");
    }
    if (!same_storage && std::memcmp(x->tensor.storage().data(), y->tensor.storage().data(),
                                     static_cast<size_t>(first.storages[i].bytes)) != 0) {
      const SeenOp& op = user_of(first, i, number);
      return concat(op_text(op, number), ": a value made on the host was ",
                    value_text(x->tensor, "one"), " in one call and ",
                    value_text(y->tensor, "another"), " in another");
    }
  }
  return {};
}

}  // namespace

std::string tape_difference(const Recorder& first, const Recorder& second) {
  const size_t count = std::min(first.ops.size(), second.ops.size());
  std::string found;
  for (size_t i = 0; i < count && found.empty(); ++i) {
    found = difference_of(first.ops[i], second.ops[i], i);
  }
  if (found.empty() && first.ops.size() != second.ops.size()) {
    const Recorder& longer = first.ops.size() > second.ops.size() ? first : second;
    found = concat(op_text(longer.ops[count], count), ": ran in one call and not in another");
  }
  if (found.empty()) {
    found = difference_of_constants(first, second);
  }
  return found.empty() ? found : concat("[capture] two calls of the step differ at ", found, kAdvice);
}

void settle_constants(const Recorder& first, Recorder& second) {
  for (size_t i = 0; i < first.storages.size(); ++i) {
    auto& external = second.storages[i].external;
    if (external && external->kind == ExternalSource::Kind::constant &&
        external->tensor.storage().is_alias_of(first.storages[i].external->tensor.storage())) {
      external->kind = ExternalSource::Kind::tensor;
    }
  }
}

}  // namespace remat::detail
