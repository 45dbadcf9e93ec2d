// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>

#include "remat/libtorch/row_parts.h"

namespace remat::detail {
namespace {

constexpr int64_t kRowsPerThread = 1000;  // no result depends on it: every row belongs to one thread

// As LibTorch's kernel: the rows of the gradient that belong to an index are added in their order,
// starting from zero.
at::Tensor embedding_rows_backward(const at::Tensor& gradient, const at::Tensor& indices,
                                   int64_t /*weights*/, int64_t padding, int64_t first,
                                   int64_t rows) {
  const int64_t width = gradient.size(-1);
  at::Tensor result = at::zeros({rows, width}, gradient.options());
  const auto* const index = indices.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "embedding_rows_backward", [&] {
    const auto* const from = gradient.const_data_ptr<scalar_t>();
    auto* const to = result.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kRowsPerThread, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < indices.numel(); ++i) {
        const int64_t row = index[i] - first;
        if (row >= begin && row < end && index[i] != padding) {
          std::transform(to + row * width, to + (row + 1) * width, from + i * width,
                         to + row * width, std::plus());
        }
      }
    });
  });
  return result;
}

TORCH_LIBRARY_FRAGMENT(remat, library) {
  library.def(
      "embedding_rows_backward(Tensor grad_output, Tensor indices, int num_weights, int padding_idx, "
      "int first, int rows) -> Tensor");
  library.impl("embedding_rows_backward", c10::DispatchKey::CPU, TORCH_FN(embedding_rows_backward));
}

}  // namespace

const c10::OperatorHandle& embedding_rows_op() {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("remat::embedding_rows_backward", "");
  return op;
}

}  // namespace remat::detail
