// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/tensor_view.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>

#include "remat/core/error.h"

namespace remat::detail {

void require_plain(const at::Tensor& tensor, const std::string& what) {
  const char* found = !tensor.device().is_cpu()          ? "on another device than the CPU"
                      : tensor.layout() != at::kStrided  ? "sparse, or of another layout than strided"
                      : tensor.is_nested()               ? "nested"
                      : tensor.is_quantized()            ? "quantized"
                      : tensor.is_conj()                 ? "lazily conjugated"
                      : tensor.is_neg()                  ? "lazily negated"
                      : tensor._is_zerotensor()          ? "a zero tensor without bytes"
                      : !tensor.has_storage()            ? "without a storage"
                                                         : nullptr;
  if (found != nullptr) {
    throw Error(concat(what, " is ", found, "; expected a dense, strided CPU tensor"));
  }
}

TensorView make_view(const at::Tensor& tensor, StorageId storage) {
  return {.storage = storage,
          .dtype = tensor.scalar_type(),
          .sizes = c10::DimVector(tensor.sizes()),
          .strides = c10::DimVector(tensor.strides()),
          .offset = tensor.storage_offset(),
          .wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number()};
}

at::Tensor make_tensor(const TensorView& view, const c10::Storage& storage) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(view.dtype));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(view.sizes, view.strides, view.offset);
  if (view.wrapped_number) {
    impl->set_wrapped_number(true);
  }
  return tensor;
}

c10::Storage borrow(void* bytes, int64_t count) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(count),
      c10::DataPtr(bytes, c10::Device(c10::kCPU)), nullptr, /*resizable=*/false));
}

int64_t span_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                                               tensor.dtype().itemsize()));
}

at::Tensor at_own_start(const at::Tensor& tensor) {
  TensorView view = make_view(tensor, StorageId{});
  view.offset = 0;
  return make_tensor(view, borrow(tensor.data_ptr(), span_bytes(tensor)));
}

std::string in_layer(const std::string& scope) {
  return scope.empty() ? std::string() : " (layer " + scope + ")";
}

}  // namespace remat::detail
