// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/refusals.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "remat/core/error.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {

void refuse(const char* verb, bool follows, const c10::OperatorHandle& op, Values arguments,
            const std::string& scope) {
  const OpTraits& traits = traits_of(op);
  if (traits.collective) {
    throw Error(concat("[", verb, "] ", op.schema().name(), in_layer(scope),
                       " talks to other processes, which a step cannot do yet: its schema does not "
                       "say what it writes; call it outside of the step"));
  }
  if (follows) {
    return;
  }
  const bool shapes = shape_depends_on_values(op, arguments);
  if (shapes || traits.reads_on_host) {
    throw Error(concat("[", verb, "] ", op.schema().name(), in_layer(scope),
                       shapes ? " makes a tensor whose shape depends on values"
                              : " reads a value on the host",
                       "; a recording alone must compute the same ops for every batch: use Step or "
                       "TrainingStep, which follow the program, or express it with tensors"));
  }
}

void WrittenTensors::add(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  tensors_.push_back({tensor, storage.unsafeGetStorageImpl(), storage.nbytes()});
}

void WrittenTensors::check_in_place(const char* verb, const c10::OperatorHandle& op,
                                    const std::string& scope) const {
  const bool in_place = std::ranges::all_of(tensors_, [](const Written& each) {
    const c10::Storage& storage = each.tensor.storage();
    return storage.unsafeGetStorageImpl() == each.storage && storage.nbytes() == each.bytes;
  });
  if (!in_place) {
    throw Error(concat("[", verb, "] ", op.schema().name(), in_layer(scope),
                       " gives a tensor another size or storage; expected ops that write into the "
                       "bytes they find, or make a new tensor"));
  }
}

}  // namespace remat::detail
