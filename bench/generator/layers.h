// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "bench/generator/tape.h"

// The layers that networks are made of, each as the ATen calls that LibTorch makes for it on the
// CPU. A layer records its backward, which reads exactly what autograd saves: the relu's result but
// the gelu's input, a convolution's input and weight, a dropout's mask. `name` becomes the scope.
// In-place layers have the framework's underscore; they return the same storage, one version on.
namespace remat::bench {

// Convolutions and what goes with them; tensors are (batch, channels, height, width).
struct Conv {
  int64_t channels = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  bool bias = false;
  bool transposed = false;
};
Tensor conv2d(Tape& tape, std::string_view name, const Tensor& x, const Conv& conv);
Tensor batch_norm(Tape& tape, std::string_view name, const Tensor& x);
Tensor max_pool(Tape& tape, std::string_view name, const Tensor& x, int64_t kernel, int64_t stride,
                int64_t padding);
Tensor adaptive_avg_pool(Tape& tape, std::string_view name, const Tensor& x, int64_t size);
Tensor global_avg_pool(Tape& tape, std::string_view name, const Tensor& x);

// Matrix products. The last dimension of x is the one that is contracted.
Tensor linear(Tape& tape, std::string_view name, const Tensor& x, int64_t features);
Tensor linear_with(Tape& tape, const Tensor& x, const Tensor& weight,
                   const std::optional<Tensor>& bias);
// Batched: (..., rows, k) by (..., k, columns). Transposed operands are views and cost nothing.
Tensor bmm(Tape& tape, std::string_view name, const Tensor& a, const Tensor& b);
Tensor embedding(Tape& tape, std::string_view name, const Tensor& weight, const Tensor& ids);

// Normalisations over the last dimension.
Tensor layer_norm(Tape& tape, std::string_view name, const Tensor& x);
Tensor softmax(Tape& tape, std::string_view name, const Tensor& x);

// Pointwise.
Tensor relu(Tape& tape, std::string_view name, const Tensor& x);
Tensor relu_(Tape& tape, std::string_view name, const Tensor& x);
Tensor gelu(Tape& tape, std::string_view name, const Tensor& x);
Tensor tanh(Tape& tape, std::string_view name, const Tensor& x);
// x + y, where y may be smaller and is then broadcast.
Tensor add(Tape& tape, std::string_view name, const Tensor& x, const Tensor& y);
Tensor add_(Tape& tape, std::string_view name, const Tensor& x, const Tensor& y);
Tensor mul(Tape& tape, std::string_view name, const Tensor& x, const Tensor& y);
// By a number: `kind` is mul or div.
Tensor scale(Tape& tape, std::string_view name, const char* kind, const Tensor& x);
// -inf where `mask` is zero.
Tensor mask_out(Tape& tape, std::string_view name, const Tensor& x, const Tensor& mask);
Tensor dropout(Tape& tape, std::string_view name, const Tensor& x);
// Drops whole samples of a batch.
Tensor stochastic_depth(Tape& tape, std::string_view name, const Tensor& x);

// Moving parts of tensors.
Tensor contiguous(Tape& tape, std::string_view name, const Tensor& x);
Tensor cat(Tape& tape, std::string_view name, const std::vector<Tensor>& parts, size_t dim);
Tensor stack(Tape& tape, std::string_view name, const std::vector<Tensor>& parts);
// Views of x; the gradient of x is put together from theirs.
std::vector<Tensor> split(Tape& tape, std::string_view name, const Tensor& x, int64_t count,
                          size_t dim);
std::vector<Tensor> unbind(Tape& tape, std::string_view name, const Tensor& x);
// x[:, 0]: a view whose gradient is zero elsewhere.
Tensor first_token(Tape& tape, std::string_view name, const Tensor& x);
// A view that repeats x along a new first dimension.
Tensor expanded(Tape& tape, std::string_view name, const Tensor& x, int64_t count);

// Mean over all targets. x is (rows, classes) or (batch, classes, height, width).
Tensor cross_entropy(Tape& tape, const Tensor& x, const Tensor& target);

}  // namespace remat::bench
