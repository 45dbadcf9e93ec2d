// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/tensor_view.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

#include "remat/core/error.h"

namespace remat::detail {
namespace {

void set_lazy(const at::Tensor& tensor, const Window& window) {
  tensor._set_conj(window.conjugated);
  tensor._set_neg(window.negated);
}

}  // namespace

void require_plain(const at::Tensor& tensor, const std::string& what) {
  const char* found = !tensor.device().is_cpu()          ? "on another device than the CPU"
                      : tensor.layout() != at::kStrided  ? "sparse, or of another layout than strided"
                      : tensor.is_nested()               ? "nested"
                      : tensor.is_quantized()            ? "quantized"
                      : tensor._is_zerotensor()          ? "a zero tensor without bytes"
                      : !tensor.has_storage()            ? "without a storage"
                                                         : nullptr;
  if (found != nullptr) {
    throw Error(concat(what, " is ", found, "; expected a dense, strided CPU tensor"));
  }
}

Window window_of(const at::Tensor& tensor) {
  return {.dtype = tensor.scalar_type(),
          .sizes = c10::DimVector(tensor.sizes()),
          .strides = c10::DimVector(tensor.strides()),
          .offset = tensor.storage_offset(),
          .wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number(),
          .conjugated = tensor.is_conj(),
          .negated = tensor.is_neg()};
}

TensorView make_view(const at::Tensor& tensor, StorageId storage) {
  TensorView view;
  static_cast<Window&>(view) = window_of(tensor);
  view.storage = storage;
  return view;
}

bool same_shape(const at::Tensor& tensor, const Window& window) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return tensor.scalar_type() == window.dtype && impl->sizes() == window.sizes &&
         impl->strides() == window.strides && impl->is_wrapped_number() == window.wrapped_number &&
         tensor.is_conj() == window.conjugated && tensor.is_neg() == window.negated;
}

at::Tensor make_tensor(const Window& window, const c10::Storage& storage) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(window.dtype));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(window.sizes, window.strides, window.offset);
  if (window.wrapped_number) {
    impl->set_wrapped_number(true);
  }
  set_lazy(tensor, window);
  return tensor;
}

at::Tensor make_alias(const Window& window, const c10::Storage& storage,
                      c10::DispatchKeySet keys) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(storage), keys, c10::scalarTypeToTypeMeta(window.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(window.sizes, window.strides, window.offset);
  set_lazy(tensor, window);
  return tensor;
}

c10::Storage borrow(void* bytes, int64_t count) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(count),
      c10::DataPtr(bytes, c10::Device(c10::kCPU)), nullptr, /*resizable=*/false));
}

c10::Storage copy_storage(const void* bytes, int64_t base_bytes, int64_t count) {
  c10::DataPtr own = c10::GetCPUAllocator()->allocate(static_cast<size_t>(count));
  auto* const begin = static_cast<char*>(own.get());
  if (count > 0) {
    std::memcpy(begin, static_cast<const char*>(bytes) + base_bytes, static_cast<size_t>(count));
  }
  const c10::DeleterFnPtr release = own.get_deleter();
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(base_bytes + count),
      c10::DataPtr(begin - base_bytes, own.release_context(), release, c10::Device(c10::kCPU)),
      nullptr, /*resizable=*/false));
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

std::string at_site(const std::string& scope, const std::string& line) {
  if (line.empty()) {
    return in_layer(scope);
  }
  return scope.empty() ? " (" + line + ")" : " (layer " + scope + ", " + line + ")";
}

std::string in_layer(const std::string& scope) {
  return scope.empty() ? std::string() : " (layer " + scope + ")";
}

}  // namespace remat::detail
