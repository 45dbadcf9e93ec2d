// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/recording_check.h"

#include "remat/core/error.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

bool looks_like(const at::Tensor& tensor, const TensorView& view) {
  return tensor.sizes() == view.sizes && tensor.strides() == view.strides &&
         tensor.storage_offset() == view.offset && tensor.scalar_type() == view.dtype;
}

std::string shape_text(const TensorView& view) {
  return concat(c10::IntArrayRef(view.sizes), " of ", c10::toString(view.dtype),
                        " with strides ", c10::IntArrayRef(view.strides));
}

}  // namespace

void check_batch(const Recording& recording, const Batch& batch) {
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

std::string layout_change(const Recording& recording) {
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

}  // namespace remat::detail
