// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "remat/libtorch/tape.h"

// Tensors as windows onto storages: taking the window off a tensor, and making a tensor from it.
namespace remat::detail {

// Throws Error, beginning with `what`, unless the tensor is dense, strided and on the CPU, with
// nothing lazy about it (conjugation, negation, zero tensors).
void require_plain(const at::Tensor& tensor, const std::string& what);

TensorView make_view(const at::Tensor& tensor, StorageId storage);

// The view's tensor over the given bytes. It has no history and must be used below autograd.
at::Tensor make_tensor(const TensorView& view, const c10::Storage& storage);

// Bytes that somebody else owns, as a storage.
c10::Storage borrow(void* bytes, int64_t count);

// How many bytes lie between the tensor's first element and the end of its last.
int64_t span_bytes(const at::Tensor& tensor);

// The tensor on a storage of its own, which begins at its first element. The bytes are the same;
// the original must outlive it.
at::Tensor at_own_start(const at::Tensor& tensor);

// " (layer encoder.0)", or nothing outside of any layer.
std::string in_layer(const std::string& scope);

}  // namespace remat::detail
