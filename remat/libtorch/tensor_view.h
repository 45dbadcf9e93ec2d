// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/StorageImpl.h>

#include <string>

#include "remat/libtorch/tape.h"

// Tensors as windows onto storages: taking the window off a tensor, and making a tensor from it.
namespace remat::detail {

// Throws Error, beginning with `what`, unless the tensor is dense, strided and on the CPU, with bytes (a
// zero tensor has none).
void require_plain(const at::Tensor& tensor, const std::string& what);

Window window_of(const at::Tensor& tensor);
TensorView make_view(const at::Tensor& tensor, StorageId storage);

// Whether the tensor looks at its storage through this window, apart from the offset.
bool same_shape(const at::Tensor& tensor, const Window& window);

// The window's tensor over the given bytes. It has no history and must be used below autograd.
at::Tensor make_tensor(const Window& window, const c10::Storage& storage);

// The same as a view of a tensor with these keys: it is an inference tensor if that is one.
at::Tensor make_alias(const Window& window, const c10::Storage& storage, c10::DispatchKeySet keys);

// One more owner of a storage.
inline c10::intrusive_ptr<c10::StorageImpl> owned(c10::StorageImpl* storage) {
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
}

// Bytes that somebody else owns, as a storage.
c10::Storage borrow(void* bytes, int64_t count);

// A storage with a copy of another's `count` bytes from `base_bytes` on, at the same offsets; what lies
// before them must not be touched.
c10::Storage copy_storage(const void* bytes, int64_t base_bytes, int64_t count);

// How many bytes lie between the tensor's first element and the end of its last.
int64_t span_bytes(const at::Tensor& tensor);

// The tensor on a storage of its own, which begins at its first element. The bytes are the same;
// the original must outlive it.
at::Tensor at_own_start(const at::Tensor& tensor);

// " (layer encoder.0)", or nothing outside of any layer.
std::string in_layer(const std::string& scope);
// " (layer encoder.0, train.py:12)", with what is known of it.
std::string at_site(const std::string& scope, const std::string& line);

}  // namespace remat::detail
