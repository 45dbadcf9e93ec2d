// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/tape_difference.h"

#include <algorithm>
#include <cstring>

#include "remat/core/error.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

constexpr const char* kAdvice =
    "; a recorded step repeats the first: compute what changes with tensors of the batch, or keep "
    "it outside of the loss function";

std::string op_text(const SeenOp& op, size_t number) {
  return concat("op ", number, ", ", op.op.schema().name(), in_layer(op.scope));
}

std::string sizes_text(const Window& view) {
  return concat(c10::IntArrayRef(view.sizes), " of ", c10::toString(view.dtype));
}

std::string difference_of(const SeenOp& a, const SeenOp& b, size_t number) {
  const c10::FunctionSchema& schema = a.op.schema();
  if (schema.operator_name() != b.op.schema().operator_name() || a.phase != b.phase) {
    return concat(op_text(a, number), ", was ", op_text(b, number), " in another call");
  }
  for (size_t i = 0; i < a.arguments.size(); ++i) {
    const c10::IValue& x = a.arguments[i];
    const c10::IValue& y = b.arguments[i];
    if (holds_tensors(x) != holds_tensors(y) || (!holds_tensors(x) && !same_constant(x, y))) {
      return concat(op_text(a, number), ": argument '", schema.arguments()[i].name(), "' was ", x,
                    " in one call and ", y, " in another");
    }
  }
  if (a.tensors.size() != b.tensors.size()) {
    return concat(op_text(a, number), ": got ", a.tensors.size(), " tensors in one call and ",
                  b.tensors.size(), " in another");
  }
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const SeenTensor& x = a.tensors[i];
    const SeenTensor& y = b.tensors[i];
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
  const auto among = [storage](const std::vector<StorageNumber>& storages) {
    return std::ranges::find(storages, static_cast<StorageNumber>(storage)) != storages.end();
  };
  const auto op = std::ranges::find_if(recorder.trace.ops, [&](const SeenOp& each) {
    return among(each.reads) || among(each.updates);
  });
  number = static_cast<size_t>(op - recorder.trace.ops.begin());
  return op != recorder.trace.ops.end() ? *op : recorder.trace.ops.back();
}

std::string difference_of_constants(const Recorder& first, const Recorder& second) {
  if (first.trace.storages.size() != second.trace.storages.size()) {
    return concat("its end: ", first.trace.storages.size(), " storages were used in one call and ",
                  second.trace.storages.size(), " in another");
  }
  for (size_t i = 0; i < first.trace.storages.size(); ++i) {
    const auto& x = first.trace.storages[i].external;
    const auto& y = second.trace.storages[i].external;
    if (x.has_value() != y.has_value() || first.trace.storages[i].bytes != second.trace.storages[i].bytes) {
      return concat("storage ", i, " had ", first.trace.storages[i].bytes, " bytes in one call and ",
                    second.trace.storages[i].bytes, " in another");
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
                                     static_cast<size_t>(first.trace.storages[i].bytes)) != 0) {
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
  const size_t count = std::min(first.trace.ops.size(), second.trace.ops.size());
  std::string found;
  for (size_t i = 0; i < count && found.empty(); ++i) {
    found = difference_of(first.trace.ops[i], second.trace.ops[i], i);
  }
  if (found.empty() && first.trace.ops.size() != second.trace.ops.size()) {
    const Recorder& longer = first.trace.ops.size() > second.trace.ops.size() ? first : second;
    found = concat(op_text(longer.trace.ops[count], count), ": ran in one call and not in another");
  }
  if (found.empty()) {
    found = difference_of_constants(first, second);
  }
  return found.empty() ? found : concat("[capture] two calls of the step differ at ", found, kAdvice);
}

void settle_constants(const Recorder& first, Recorder& second) {
  for (size_t i = 0; i < first.trace.storages.size(); ++i) {
    auto& external = second.trace.storages[i].external;
    if (external && external->kind == ExternalSource::Kind::constant &&
        external->tensor.storage().is_alias_of(first.trace.storages[i].external->tensor.storage())) {
      external->kind = ExternalSource::Kind::tensor;
    }
  }
}

}  // namespace remat::detail
