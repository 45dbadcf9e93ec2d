// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/trace.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

void host_access(const at::Tensor&) {}

// Four lanes, so that a core reads as fast as its memory delivers.
uint64_t digest_of_part(const void* bytes, size_t count) {
  constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
  const auto* at = static_cast<const unsigned char*>(bytes);
  std::array<uint64_t, 4> lane = {1, 2, 3, count};
  for (; count >= 32; count -= 32, at += 32) {
    std::array<uint64_t, 4> word;
    std::memcpy(word.data(), at, 32);
    for (size_t i = 0; i < 4; ++i) {
      lane[i] = (lane[i] ^ word[i]) * kPrime;
      lane[i] ^= lane[i] >> 29;
    }
  }
  for (; count > 0; --count, ++at) {
    lane[0] = (lane[0] ^ *at) * kPrime;
  }
  uint64_t result = 0;
  for (const uint64_t each : lane) {
    result = (result ^ each) * kPrime;
    result ^= result >> 32;
  }
  return result;
}

TORCH_LIBRARY(remat, library) {
  library.def("host_access(Tensor self) -> ()");
  library.impl("host_access", c10::DispatchKey::CPU, TORCH_FN(host_access));
}

}  // namespace

SeenView seen_view(const at::Tensor& tensor, StorageNumber storage, int64_t base_bytes) {
  SeenView view;
  static_cast<Window&>(view) = window_of(tensor);
  view.storage = storage;
  if (base_bytes != 0) {
    view.offset -= base_bytes / static_cast<int64_t>(tensor.dtype().itemsize());
  }
  return view;
}

const c10::OperatorHandle& host_access_op() {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("remat::host_access", "");
  return op;
}

std::string call_text(const SeenOp& op) { return op.op.schema().name() + at_site(op.scope, op.line); }

// Of a large block, every part of a fixed size by whichever core is free: a recorded step is digested as it
// runs, and its kernels use all of them.
uint64_t digest(const void* bytes, size_t count) {
  constexpr size_t kPart = size_t{1} << 18;
  if (count <= kPart) {
    return digest_of_part(bytes, count);
  }
  const auto* const begin = static_cast<const char*>(bytes);
  std::vector<uint64_t> parts((count + kPart - 1) / kPart);
  at::parallel_for(0, static_cast<int64_t>(parts.size()), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      parts[i] = digest_of_part(begin + i * kPart, std::min(kPart, count - i * kPart));
    }
  });
  return digest_of_part(parts.data(), parts.size() * sizeof(uint64_t));
}

}  // namespace remat::detail
